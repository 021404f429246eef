"""Make everything that `make run` and `make test` need: `python3 packaging/set_up.py run|test`.

Standard library only, safe to run twice: a finished environment is recognised by a stamp and left alone.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "lathe-stamp"
TORCH = "2.13.0"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# They come along with the CPU engine, do not fit this torch, and break importing models. Nothing here needs them.
UNWANTED = ("torchvision", "torchaudio", "torchcodec")
# For prefill and decode apart; without their own needs, since NIXL's name builds for two versions of CUDA.
APART = ("nixl==1.5.1", "vllm-router==0.1.17")
APART_CPU, APART_GPU = "nixl-cu12==1.5.1", "nixl-cu13==1.5.1"
QT_PACKAGES = [
    "xvfb",
    "libxcb-icccm4",
    "libxcb-keysyms1",
    "libxcb-cursor0",
    "libxcb-image0",
    "libxcb-render-util0",
    "libxcb-shape0",
    "libxcb-xinerama0",
    "libxkbcommon-x11-0",
    "libegl1",
    "libgl1",
    "libdbus-1-3",
    "libfontconfig1",
    "libglib2.0-0",
]
FONT_PACKAGES = ["fonts-noto-cjk", "fontconfig"]
ROOM_GB = 7


def main(purpose: str) -> int:
    started = time.monotonic()
    if sys.version_info < (3, 11) or sys.version_info >= (3, 14):
        return stop(
            f"Python {sys.version.split()[0]} does not fit: 3.11, 3.12 or 3.13 is needed.",
            "Name one: make PYTHON=python3.11 " + purpose,
        )
    gpu = has_nvidia()
    extras = ["engine" if gpu else "engine-cpu"] + (["test"] if purpose == "test" else [])
    if not environment(extras, gpu):
        return 1
    system_libraries()
    if not starter_model():
        return 1
    say(f"Set-up is complete ({time.monotonic() - started:.0f} s).")
    return 0


def environment(extras: list[str], gpu: bool) -> bool:
    """The virtual environment with torch first, then the rest; skipped when the stamp covers the extras."""
    wanted = fingerprint(gpu)
    have = STAMP.read_text().split() if STAMP.exists() else []
    if PYTHON.exists() and have[:1] == [wanted] and set(extras) <= set(have[1:]):
        say("1/3 The environment is up to date.")
        return True
    free = shutil.disk_usage(ROOT).free / 1e9
    if not PYTHON.exists() and free < ROOM_GB:
        stop(f"{ROOM_GB} GB are needed in {ROOT}; {free:.1f} GB are free.", "Free some space and start again.")
        return False
    say(f"1/3 Installing the environment in {VENV} (about 4 GB; 3 to 15 minutes the first time).")
    STAMP.unlink(missing_ok=True)
    if not works(PYTHON, "import pip"):
        shutil.rmtree(VENV, ignore_errors=True)
        if subprocess.run([sys.executable, "-m", "venv", str(VENV)]).returncode:
            stop("The virtual environment could not be made.", "Install it: sudo apt-get install python3-venv")
            return False
    extras = sorted(set(extras) | ({"test"} & set(have[1:])))
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check"]
    index = [] if gpu else cpu_index(pip)
    torch = f"torch=={TORCH}" if gpu else f"torch=={TORCH}+cpu"
    # torch goes first and exactly: a later requirement would otherwise choose a build of several GB for GPUs.
    steps = [
        [*pip, "install", *index, torch],
        [*pip, "install", *index, "-e", f"{ROOT}[{','.join(extras)}]"],
    ]
    for step in steps:
        if subprocess.run(step, cwd=ROOT).returncode:
            stop("Installing failed; the reason is above.", "Check the connection, then run the same command again.")
            return False
    apart = [*pip, "install", "-q", "--no-deps", *APART, APART_GPU if gpu else APART_CPU]
    if subprocess.run(apart, cwd=ROOT).returncode:
        say("Prefill and decode apart will not be there; everything else is.")
    if not gpu:
        subprocess.run([*pip, "uninstall", "-y", "-q", *UNWANTED], stderr=subprocess.DEVNULL)
    if not works(PYTHON, "import torch, transformers, vllm, PySide6.QtWidgets"):
        stop("The environment does not import what it needs; the reason is above.", f"Delete {VENV} and start again.")
        return False
    STAMP.write_text(" ".join([wanted, *extras]))
    return True


def cpu_index(pip: list[str]) -> list[str]:
    """PyTorch's own index for CPU builds, unless such a wheel is already within pip's reach."""
    probe = [*pip, "install", "-q", "--no-deps", "--dry-run", f"torch=={TORCH}+cpu"]
    found = subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    return [] if found else ["--extra-index-url", TORCH_CPU_INDEX]


def system_libraries() -> None:
    """Qt's libraries and a Chinese font: installed where we may, otherwise the exact command is printed."""
    missing = []
    plugin = next(VENV.glob("lib/python*/site-packages/PySide6/Qt/plugins/platforms/libqxcb.so"), None)
    libraries = output_of(["ldd", str(plugin)]) if plugin else ""
    if "not found" in libraries or not shutil.which("Xvfb"):
        missing += QT_PACKAGES
    if not output_of(["fc-list", ":lang=zh"]).strip():
        missing += FONT_PACKAGES
    if not missing:
        say("2/3 Qt's system libraries and a Chinese font are there.")
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say("2/3 Installing Qt's system libraries and a Chinese font.")
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], env=quiet)
        if subprocess.run([*command, "-qq"], env=quiet, stdout=subprocess.DEVNULL).returncode == 0:
            return
    say("2/3 Some system packages are missing; the window may not open without them. Please run:")
    say("    sudo " + " ".join(command))


def starter_model() -> bool:
    """SmolLM2-135M-Instruct, once per user."""
    say("3/3 The starter model.")
    if subprocess.run([str(PYTHON), "-m", "workbench.cli", "starter"], cwd=ROOT).returncode:
        stop("The starter model could not be made; the reason is above.", "Run the same command again.")
        return False
    return True


def fingerprint(gpu: bool) -> str:
    """Changes when the declared packages, this script, the interpreter or the kind of machine change."""
    text = b"".join(path.read_bytes() for path in (ROOT / "pyproject.toml", Path(__file__)))
    return hashlib.sha256(text + f"{sys.version} {gpu} {VENV}".encode()).hexdigest()


def has_nvidia() -> bool:
    return bool(shutil.which("nvidia-smi")) and "GPU 0" in output_of(["nvidia-smi", "-L"])


def works(python: Path, statement: str) -> bool:
    return python.exists() and subprocess.run([str(python), "-W", "ignore", "-c", statement]).returncode == 0


def output_of(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout
    except OSError:
        return ""


def say(text: str) -> None:
    print(text, flush=True)


def stop(reason: str, next_step: str) -> int:
    print(f"{reason}\n{next_step}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "run"))
