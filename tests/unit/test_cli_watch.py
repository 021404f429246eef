"""A running server's figures at the command line, and as a file."""

import csv
import os
import subprocess
import sys

from fake_server import FakeServer

PAGE = 'vllm:num_requests_running{engine="0"} 2.0\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'


def lathe(home, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "workbench.cli", *arguments], capture_output=True, text=True, timeout=60,
        env={**os.environ, "LATHE_HOME": str(home), "LATHE_LANGUAGE": "en"},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_a_line_a_second_and_the_file_at_the_end(tmp_path):
    file = tmp_path / "new folder" / "figures.csv"
    with FakeServer(metrics=PAGE) as server:
        code, out, err = lathe(tmp_path, "watch", server.url, "--seconds", "2.6", "--figures", str(file))
    assert code == 0, err
    lines = out.splitlines()
    assert 2 <= len(lines) <= 4
    assert lines[0].startswith("running 2 · waiting – · KV cache 25 % · – tok/s")
    with file.open() as written:
        rows = list(csv.DictReader(written))
    assert len(rows) == len(lines)
    assert {(row["source"], row["record"], row["kv_usage_share"], row["waiting_requests"]) for row in rows} == {
        (server.url, "sample", "0.25", "")
    }
    assert abs(float(rows[1]["time_s"]) - 1) < 0.5


def test_a_server_that_is_not_vllm_has_none(tmp_path):
    with FakeServer() as server:
        code, out, err = lathe(tmp_path, "watch", server.url)
    assert (code, out) == (1, "") and "shows no figures" in err and "Traceback" not in err
