"""The application before its window: a folder for its files."""

from PySide6.QtWidgets import QMessageBox

from ui import app


def test_a_folder_that_cannot_be_used_is_told_in_a_box_and_no_window_opens(qapp, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(QMessageBox, "critical", lambda _parent, title, text: told.append((title, text)))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LATHE_HOME", str(tmp_path / "file" / "home"))
    assert not app._has_place()
    ((title, text),) = told
    assert title == "Lathe" and str(tmp_path / "file") in text and "Not a directory" in text and "rights" in text
