"""`lathe demo` as a user runs it, with a tiny random model in the starter's place: three engines, report, pictures."""

import json
import os
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from tiny_models import write_plain

from workbench import demo
from workbench.catalog import starter

LIMIT_S = 400  # a minute and a half on two idle cores


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The demo's folder, and what it printed."""
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("demo") / "made here"
    write_plain(home / "models" / starter.NAME, tokenizer=True)
    lathe = [sys.executable, "-c", "from workbench.cli import main; main()", "demo", "-o", str(folder)]
    env = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    env |= {"LATHE_HOME": str(home), "LATHE_LANGUAGE": "en", "TORCHDYNAMO_DISABLE": "1"}
    done = subprocess.run(lathe, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, done.stdout


def test_the_report_holds_what_was_measured(made):
    folder, told = made
    report = demo.summary(folder)
    assert str(folder / "report.html") in told
    assert report["model"] == starter.NAME and report["modules"] == 14
    assert 0 < report["sizes"]["quantized"] < report["sizes"]["original"]
    assert 0 < report["mean_output_error"] < report["mean_plain_output_error"] < 1
    ours, plain = report["quality"]
    assert 0 < ours["kl"] < plain["kl"] and plain["name"] == "RTN"
    for side, engine in report["engines"].items():
        assert 0 < engine["warmup_s"] < engine["ready_s"] and engine["kv_tokens"] > 0, side
    assert [answer["prompt"] for answer in report["answers"]] == [demo.PROMPT, demo.QUOTING_PROMPT]
    for answer in report["answers"]:
        for side in ("original", "quantized"):
            figures = answer[side]["figures"]
            assert answer[side]["text"] and 0 < figures["ttft_s"] < figures["total_s"]
            assert 1 < figures["tokens"] <= demo.SAMPLING.max_tokens
    speculation = report["speculation"]
    assert 0 <= speculation["accepted"] <= speculation["drafted"] and speculation["speedup"] > 0


def test_the_page_shows_it_and_loads_nothing_from_elsewhere(made):
    folder, _ = made
    report, page = demo.summary(folder), unescape((folder / "report.html").read_text(encoding="utf-8"))
    assert "None" not in page and "://" not in page.replace("http://127.0.0.1", "")
    for row in report["quality"]:
        assert f"{row['kl']:.4f}" in page
    for side, command in report["commands"].items():
        assert command in page, side
        assert "$LATHE_KEY" in command
    assert "--speculative-config" in report["commands"]["drafting"]


def test_the_pictures_are_the_windows_pages(made):
    from PySide6.QtGui import QImage

    folder, _ = made
    names = demo.summary(folder)["pictures"]
    assert names == ["models.png", "quantize.png", "serve.png", "chat.png"]
    for name in names:
        image = QImage(str(folder / name))
        colors = {image.pixel(x, y) for x in range(0, image.width(), 7) for y in range(0, image.height(), 7)}
        assert (image.width(), image.height()) == (1440, 900) and len(colors) > 20, name
    told = (folder / "pictures.log").read_text().splitlines()
    assert [line for line in told if not line.startswith("qt.text.font")] == []  # random tokens are in rare scripts


def test_the_events_are_kept_and_the_key_is_not_in_the_report(made):
    folder, _ = made
    keys = set()
    for side in ("original", "quantized", "drafting"):
        events = [json.loads(line) for line in (folder / f"engine-{side}.jsonl").read_text().splitlines()]
        assert events[-1]["kind"] == "EngineStopped", side
        keys |= {event["key"] for event in events if event["kind"] == "EngineReady"}
    assert len(keys) == 3
    for path in (folder / "report.json", folder / "report.html"):
        assert not [key for key in keys if key in Path(path).read_text()]
