"""LoRA adapters of a running engine, from the command line: what is asked of the engine, and what its refusals mean."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Engine(BaseHTTPRequestHandler):
    """Answers as vLLM 0.32 does; without `loads` it was started without adapters and has no such address."""

    loads = True
    names: list[str]
    asked: list[tuple[str, dict, str]]

    def do_GET(self):
        self._reply(200, {"data": [{"id": name} for name in self.names]})

    def do_POST(self):
        told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, told, self.headers["Authorization"]))
        if not self.loads:
            return self._reply(404, {"error": {"message": "Not Found", "type": "NotFoundError", "code": 404}})
        if self.path.endswith("/unload_lora_adapter"):
            if told["lora_name"] not in self.names:
                message = f"The lora adapter '{told['lora_name']}' cannot be found."
                return self._reply(404, {"error": {"message": message, "type": "NotFoundError", "code": 404}})
            self.names.remove(told["lora_name"])
        else:
            self.names.append(told["lora_name"])
        return self._reply(200, "Success")

    def _reply(self, status, content):
        raw = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_):
        pass


@pytest.fixture
def engine():
    kind = type("Running", (Engine,), {"names": ["m", "style"], "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    kind.url = f"http://127.0.0.1:{server.server_port}/v1"
    yield kind
    server.shutdown()
    server.server_close()


@pytest.fixture
def adapter(tmp_path):
    folder = tmp_path / "legal = style"
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 8}')
    return folder


def lathe(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "workbench.cli", "adapters", *map(str, arguments)],
        capture_output=True, text=True, timeout=60, env={**os.environ, "LATHE_LANGUAGE": "en", "COLUMNS": "200"},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_one_is_loaded_and_another_dropped(engine, adapter):
    code, out, err = lathe(engine.url, "--load", f"law={adapter}", "--unload", "style", "--key", "k", "--json")
    assert (code, json.loads(out)) == (0, ["m", "law"]), err
    assert engine.asked == [
        ("/v1/unload_lora_adapter", {"lora_name": "style"}, "Bearer k"),
        ("/v1/load_lora_adapter", {"lora_name": "law", "lora_path": str(adapter)}, "Bearer k"),
    ]


def test_without_options_the_models_are_listed(engine):
    assert lathe(engine.url)[:2] == (0, "m\nstyle\n")


def test_refusals_are_sentences(engine, adapter, tmp_path):
    code, _, err = lathe(engine.url, "--unload", "nobody")
    assert code == 1 and "nobody" in err
    code, _, err = lathe(engine.url, "--load", f"x={tmp_path}")
    assert code == 1 and "no LoRA adapter" in err and len(engine.asked) == 1
    engine.loads = False
    code, _, err = lathe(engine.url, "--load", f"x={adapter}")
    assert code == 1 and "started without adapters" in err
