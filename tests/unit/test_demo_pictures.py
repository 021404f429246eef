"""The demo's pictures where the window's program cannot run, as on a server without Qt's libraries."""

from workbench import demo, process


async def test_a_demo_without_pictures_is_told_and_goes_on(tmp_path, monkeypatch):
    async def run(argv, **_):
        assert argv[1:3] == ["-m", "ui.pictures"]
        raise process.ProcessEnded(127, ["libEGL.so.1: cannot open shared object file", ""])

    monkeypatch.setattr(process, "run", run)
    told = []
    assert await demo._pictures(tmp_path, tmp_path, told.append) == []
    assert "libEGL" in str(told[0].values) and told[0].level == "warning"
