"""The Quantize page after a run: checks, report, other formats; and a change of mind while one goes on."""

import asyncio

from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QLabel
from quantize_parts import reopened

from workbench import export, jobs
from workbench.errors import WorkbenchError
from workbench.events import Advanced, Failed, Finished, Stage
from workbench.quant_events import Checked

CHECKS = (
    Checked("The folder holds what the plan says", True, "{count} {count:tensor|tensors}, all finite", {"count": 752}),
    Checked("The size is as predicted", True, "{size} bytes, {expected} were predicted", {"size": 5, "expected": 5}),
)


async def test_checks_stand_under_the_result(page, model, tmp_path):
    (tmp_path / "result").mkdir()
    reopened(page, model, tmp_path, Stage("Quantizing", 1), *CHECKS, Finished(str(tmp_path / "result"), 114_000_000))
    lines = page.view.result.checks.lines
    assert [line.text() for line in lines] == [check.name for check in CHECKS]
    assert lines[0].toolTip() == "752 tensors, all finite" and lines[0].accessibleName().startswith("passed")
    assert page.view.result.serve.isEnabled()


async def test_a_check_that_failed_is_red_and_nothing_is_offered(page, model, tmp_path):
    wrong = Checked("It stays near the original", False, "KL {kl}", {"kl": "2.1"})
    failed = Failed("The result failed a check: {check} ({detail}).", "", {"check": "x", "detail": "y"})
    reopened(page, model, tmp_path, Stage("Quantizing", 1), *CHECKS, wrong, failed)
    assert page.view.failure.isVisible() and not page.view.result.isVisible()
    words = page.view.checks.lines[-1]
    mark, _ = words.parentWidget().findChildren(QLabel)
    assert words.text() == "It stays near the original: KL 2.1" and words.wordWrap()
    assert (mark.text(), mark.property("tone"), words.property("tone")) == ("✕", "rejected", "text")
    assert page.view.report.isVisible()


async def test_the_report_is_opened(page, model, tmp_path, monkeypatch, until):
    opened = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toLocalFile()))
    (tmp_path / "result").mkdir()
    folder = reopened(page, model, tmp_path, Stage("Quantizing", 1), *CHECKS, Finished(str(tmp_path / "result"), 5))
    page.view.result.report.click()
    await until(lambda: opened)
    assert opened == [str(folder / "report.html")]
    assert "752 tensors" in (folder / "report.html").read_text()


async def test_what_cannot_be_exported_says_why(page, model, tmp_path, until):
    (tmp_path / "result").mkdir()
    reopened(page, model, tmp_path, Finished(str(tmp_path / "result"), 5))
    await until(lambda: page.exports.offers)
    menu = page.view.result.export
    assert not menu.button.isEnabled() and menu.button.toolTip() == str(page.exports.refusal) != ""


async def test_a_uniform_result_is_exported_beside_itself(page, model, tmp_path, monkeypatch, until):
    result = tmp_path / "result"
    result.mkdir()

    def plan(folder, form):
        if form == "awq":
            raise WorkbenchError("Not as {format}.", format=form)
        return export.Export(model, form, (export.Stored("x", 64, 64, 4, 64, True),))

    monkeypatch.setattr(export, "plan", plan)
    reopened(page, model, tmp_path, Finished(str(result), 5))
    await until(lambda: page.exports.offers)
    menu, begun, go = page.view.result.export, [], asyncio.Event()
    menu._fill()
    actions = {action.text().split("  ")[0]: action for action in menu.lines.actions()}
    assert not actions["AWQ"].isEnabled() and actions["AWQ"].toolTip() == "Not as awq." and actions["GPTQ"].isEnabled()

    async def run(folder, on_event, settings, ask=None):
        begun.append(jobs.spec_of(folder))
        on_event(Stage("Converting the layers", 4))
        on_event(Advanced(1))
        await go.wait()

    monkeypatch.setattr(jobs, "run", run)
    actions["GPTQ"].trigger()
    await until(lambda: "25 %" in menu.state.full)
    assert menu.button.text() == "Cancel export" and page.would_lose() is not None
    told = []
    page.made.connect(told.append)
    go.set()
    await until(lambda: told)
    output = model.folder.with_name("small-GPTQ")
    assert told == [output] and begun[0]["format"] == "gptq" and begun[0]["output"] == str(output)
    assert menu.state.full == f"Written to {output}" and page.would_lose() is None
