"""Stands in for an interpreter with vLLM: answers the probe, logs its arguments and plays a list of steps.

Asked for the router it becomes the real one.
`install` writes an executable that runs this file; the steps and the log lie beside it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import programs

FACTS = {
    "version": "0.32.0", "torch": "2.13.0+cpu", "cpu": True, "plugin": True, "openmp": None,
    "nixl": True, "router": True,
    "flags": [
        "--model", "--served-model-name", "--host", "--port", "--dtype", "--enforce-eager", "--max-model-len",
        "--kv-cache-memory-bytes", "--speculative-config", "--per-request-spec-decode-metrics", "--max-num-seqs",
        "--block-size", "--gpu-memory-utilization", "--trust-remote-code", "--seed",
        "--kv-transfer-config",
    ],
}  # fmt: skip


def install(folder: Path, *steps: tuple) -> Path:
    """The path of an interpreter in `folder` that plays the steps: print, stderr, sleep, tree, deaf, answer, exit."""
    start = f"[sys.executable, {__file__!r}, {str(folder)!r}, *sys.argv[1:]]"
    python = programs.write(folder / "python", f"import os, sys\nos.execv(sys.executable, {start})\n")
    (folder / "steps.json").write_text(json.dumps(steps))
    return python


def logged(folder: Path) -> dict:
    """The argv and environment of the last start."""
    return json.loads((folder / "started.json").read_text())


def main(folder: Path) -> None:
    if sys.argv[2] == "-P":
        print(json.dumps(FACTS))
        return
    if "vllm_router.launch_router" in sys.argv:
        os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
    (folder / "started.json").write_text(json.dumps({"argv": sys.argv[2:], "env": dict(os.environ)}))
    for name, *values in json.loads((folder / "steps.json").read_text()):
        globals()[f"step_{name}"](*values)


def step_print(line: str) -> None:
    print(line, flush=True)


def step_stderr(size: int) -> None:
    for number in range(size // 100):
        print(f"{number:099}", file=sys.stderr)


def step_sleep(seconds: float) -> None:
    time.sleep(seconds)


def step_tree(pids: str, name: str = "") -> None:
    """A child that starts a grandchild in its own session, both deaf to SIGTERM; their pids go to a file."""
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    grandchild = f"[{sys.executable!r}, '-c', {deaf + 'time.sleep(600)'!r}, {name!r}]"
    middle = (
        f"{deaf}import os, subprocess; child = subprocess.Popen({grandchild}, start_new_session=True); "
        f"open({pids + '.tmp'!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}'); "
        f"os.rename({pids + '.tmp'!r}, {pids!r}); "
        "time.sleep(600)"
    )
    subprocess.Popen([sys.executable, "-c", middle])


def step_deaf() -> None:
    """From now on SIGTERM does not end it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def step_exit(code: int) -> None:
    sys.exit(code)


def step_answer(mode: str, metrics: tuple[str, ...] = ()) -> None:
    """Serve the port: "ours" as the engine would, "stranger" lists another name, "open" asks nobody for a key.

    "dying" is ours until SIGUSR1; from then on its engine is dead and the server goes on. `metrics` are its pages of
    /metrics, one after the other; the last stays.
    """
    argv = sys.argv
    names = argv[argv.index("--served-model-name") + 1 : argv.index("--host")] if mode != "stranger" else ["other"]
    key = os.environ["VLLM_API_KEY"] if mode in ("ours", "dying") else None
    died, pages = [], list(metrics)
    signal.signal(signal.SIGUSR1, lambda *_: died.append(1))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = key is None or self.headers["Authorization"] == f"Bearer {key}"
            health = 503 if died else 200
            figures = self.path == "/metrics" and pages  # vLLM asks for the key below /v1 only
            self.send_response(health if self.path == "/health" else 200 if allowed or figures else 401)
            self.end_headers()
            if figures:
                self.wfile.write((pages.pop(0) if len(pages) > 1 else pages[0]).encode())
            elif allowed:
                self.wfile.write(json.dumps({"data": [{"id": name} for name in names]}).encode())

        def do_POST(self) -> None:
            time.sleep(0.2)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", int(argv[argv.index("--port") + 1])), Handler).serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
