"""Put Lathe into the desktop's menu: an entry that opens the window by double-click, and its icon."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")


def main() -> int:
    entry = DATA / "applications" / "lathe.desktop"
    icon = DATA / "icons" / "hicolor" / "scalable" / "apps" / "lathe.svg"
    for path in (entry, icon):
        path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / "resources" / "icons" / "lathe.svg", icon)
    template = (ROOT / "packaging" / "lathe.desktop").read_text(encoding="utf-8")
    command = quoted(Path(sys.executable).with_name("lathe"))
    entry.write_text(template.replace("Exec=lathe", f"Exec={command}"), encoding="utf-8")
    entry.chmod(0o755)  # file managers start only an executable entry by double-click
    if shutil.which("update-desktop-database"):
        subprocess.run(["update-desktop-database", str(entry.parent)])
    print(f"Lathe is in the menu now ({entry}).")
    return 0


def quoted(path: Path) -> str:
    """A path as the Desktop Entry Specification wants it in Exec: quoted, with its four special letters escaped."""
    text = str(path)
    for letter in ("\\", '"', "`", "$"):
        text = text.replace(letter, "\\" + letter)
    # the file's own escaping of backslashes comes on top, and % begins a field code
    return '"' + text.replace("\\", "\\\\").replace("%", "%%") + '"'


if __name__ == "__main__":
    sys.exit(main())
