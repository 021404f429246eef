"""The result on disk: written beside under a temporary name, verified there, then renamed into place."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from compressed_tensors.quantization import QuantizationConfig
from torch import Tensor

from workbench import json_file
from workbench.catalog.linears import ENCODER
from workbench.plan import Plan, Planned
from workbench.quantization import place, side_files
from workbench.quantization.names import in_code
from workbench.quantization.packing import scheme_of
from workbench.quantization.place import disk_errors, partial
from workbench.quantization.shard import Shard
from workbench.words import Sentence

SHARD_BYTES = 2 << 30  # also what the disk holds twice for a while
SIDE_BYTES = 64 << 20  # tokenizer and the like
FAILED = "lathe-failed.json"  # marks a result that is not offered; the catalog reads it


class Checkpoint:
    """A folder in the making. `add` tensors, `finish` it, then `publish`; `discard` removes what was begun."""

    def __init__(self, source: Path, target: Path, plan: Plan):
        self.source, self.target, self.plan = source, target, plan
        self.folder = partial(target)
        self._shards: list[Shard] = []  # the last one is open until `finish`
        self._held: int | None = None

    @property
    def names(self) -> set[str]:
        """Every tensor taken so far."""
        return {name for shard in self._shards for name in shard.tensors}

    def open(self) -> None:
        with disk_errors(self.target):
            self._held = place.claim(self.target)

    def add(self, tensors: dict[str, Tensor]) -> None:
        """Take tensors by full name; a shard is closed whenever enough have come together."""
        with disk_errors(self.target):
            for name, tensor in tensors.items():
                if not self._shards or self._shards[-1].bytes + tensor.nbytes > SHARD_BYTES:
                    self._begin_shard()
                self._shards[-1].add(name, tensor)

    def finish(self) -> None:
        """Close the last shard; write the index, config.json and the files that go with a model."""
        with disk_errors(self.target):
            if self._shards:
                self._shards[-1].close()
            self._name_shards()
            self._write_config()
            side_files.copy(self.source, self.folder)
            for file in self.folder.iterdir():
                file.chmod(0o644)

    @property
    def size(self) -> int:
        """The bytes of the weights that are written."""
        return sum(file.stat().st_size for file in self.folder.glob("*.safetensors"))

    def describe(self, report: dict[str, Any]) -> None:
        """Leave word of how it was made, for programs."""
        with disk_errors(self.target):
            text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False)
            (self.folder / "lathe.json").write_text(text, encoding="utf-8")

    def publish(self, replace: bool = False) -> int:
        """Put the folder under its final name; an earlier result there goes only now. The bytes of its weights.

        Raises WorkbenchError where something else came there meanwhile.
        """
        place.check_name(self.target, replace)
        size = self.size
        old = self.folder.with_name(f"{self.folder.name}.old")
        with disk_errors(self.target):
            if self.target.exists():
                self.target.rename(old)
            try:
                self.folder.rename(self.target)
            except BaseException:
                if old.exists():
                    old.rename(self.target)
                raise
        shutil.rmtree(old, ignore_errors=True)
        return size

    def set_aside(self, why: Sentence) -> Path:
        """Keep a result that failed its checks under a name of its own and marked; an earlier good one stays."""
        aside = self.target.with_name(f"{self.target.name}.failed")
        with disk_errors(self.target):
            marker = {"message": why.template, "values": why.values}
            (self.folder / FAILED).write_text(json.dumps(marker, ensure_ascii=False), encoding="utf-8")
            shutil.rmtree(aside, ignore_errors=True)
            self.folder.rename(aside)
        return aside

    def discard(self) -> None:
        """Remove what was begun; nothing where it has its name already, or never was opened."""
        if self._held is None:
            return
        for shard in self._shards:
            shard.discard()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._held)
        self._held = None

    def _begin_shard(self) -> None:
        if self._shards:
            self._shards[-1].close()
        self._shards.append(Shard(self.folder / _shard_name(len(self._shards) + 1, 0)))

    def _name_shards(self) -> None:
        if len(self._shards) == 1:
            self._shards[0].path.rename(self.folder / "model.safetensors")
            return
        weight_map = {}
        for number, shard in enumerate(self._shards, 1):
            final = _shard_name(number, len(self._shards))
            shard.path.rename(self.folder / final)
            weight_map |= dict.fromkeys(shard.tensors, final)
        total = sum(shard.bytes for shard in self._shards)
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")

    def _write_config(self) -> None:
        config = json_file.read(self.source / "config.json")
        if self.plan.quantized:
            config["quantization_config"] = quantization_config(self.plan)
        text = json.dumps(config, indent=2, ensure_ascii=False)
        (self.folder / "config.json").write_text(text + "\n", encoding="utf-8")


def disk_bytes(size: int) -> int:
    """What the weights of a result of `size` bytes take while it is made."""
    return size + min(size, SHARD_BYTES)


def check_space(target: Path, size: int) -> None:
    """Refuse to start where a result of `size` bytes will not fit."""
    place.check_space(target, disk_bytes(size) + SIDE_BYTES)


def quantization_config(plan: Plan) -> dict:
    """What config.json says: one group per distinct scheme, each with its targets, and what stays plain."""
    groups: dict[tuple, list[Planned]] = {}
    for planned in plan.quantized:
        choice = planned.choice
        groups.setdefault((choice.bits, choice.group_size, choice.symmetric), []).append(planned)
    schemes = {
        f"group_{number}": scheme_of(members[0].choice, _targets(members, plan))
        for number, members in enumerate(groups.values())
    }
    patterns = [target.removeprefix("re:") for scheme in schemes.values() for target in scheme.targets if ":" in target]
    # A picture tower and a layer for speculation have layers of the same names, which stay as they are.
    alike = [_broad(name) for name in plan.kept if any(re.match(pattern, name) for pattern in patterns)]
    kept = [planned.linear.name for planned in plan.linears if planned.choice.kept]
    ignored = list(dict.fromkeys(("lm_head", *kept, *alike)))
    config = QuantizationConfig(
        config_groups=schemes, format="pack-quantized", quantization_status="compressed", ignore=ignored
    )
    # vLLM wants the method by name, and compressed-tensors dumps it under the same name.
    return config.model_dump(mode="json") | {"quant_method": "compressed-tensors"}


def _broad(name: str) -> str:
    """Readers call an encoder's layers by longer or shorter names, so all of it is named by one pattern."""
    encoder = next((part for part in name.split(".") if ENCODER.search(part)), None)
    return rf"re:.*{re.escape(encoder)}\..*" if encoder else name


def _targets(members: list[Planned], plan: Plan) -> list[str]:
    """A pattern for each role that is wholly in the group, names for the others."""
    targets: list[str] = []
    ours = {planned.linear.name for planned in members}
    for suffix in dict.fromkeys(_suffix(planned) for planned in members):
        names = [planned.linear.name for planned in plan.linears if _suffix(planned) == suffix]
        if ours.issuperset(names):
            targets.append(rf"re:.*\.{suffix}$")
        else:
            targets += [name for name in names if name in ours]
    return targets


def _suffix(planned: Planned) -> str:
    """The last two parts of the name as a pattern; all experts of a layer have one."""
    parts = planned.linear.name.split(".")
    if planned.linear.expert:
        # vLLM before 0.27 asks for Mixtral's w1 as gate_proj, later ones as it is called on disk.
        leaves = dict.fromkeys((parts[-1], in_code(planned.linear.name).rpartition(".")[2]))
        leaf = "|".join(map(re.escape, leaves))
        return rf"experts\.\d+\.{leaf if len(leaves) == 1 else f'({leaf})'}"
    return re.escape(".".join(parts[-2:]))


def _shard_name(number: int, total: int) -> str:
    return f"model-{number:05}-of-{total:05}.safetensors"
