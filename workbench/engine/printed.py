"""What vLLM itself prints of its memory while it starts, read from its output: the forms of 0.26 to 0.32."""

import re

from workbench.catalog.overhead import GIB
from workbench.engine_events import EngineMemory

NUMBER = r"-?[\d.]+"
COUNTS = ("tokens", "context", "concurrency")  # all other figures are GiB

# Each figure by its name, in the order in which they are printed. On several devices each prints its own.
LINES = tuple(
    re.compile(pattern.replace("#", NUMBER))
    for pattern in (
        r"Model loading took (?P<weights>#) GiB",
        r"Available KV cache memory: (?P<kv>#) GiB",
        r"reserved (?P<kv>#) GiB memory for KV Cache as specified",
        r"(?:Explicitly|Auto) set \((?P<kv>#)/#\) GiB for KV cache",
        r"KV cache size: (?P<tokens>[\d,]+) tokens",
        r"Maximum concurrency for (?P<context>[\d,]+) tokens per request: (?P<concurrency>#)x",
        r"Estimated CUDA graph memory: (?P<planned>#) GiB",
        r"Graph capturing finished in \d+ secs?, took (?P<graphs>#) GiB",
        r"CUDA graph pool memory: # GiB \(actual\), (?P<planned>#) GiB \(estimated\)",
        r"Free memory on device \(#/(?P<total>#) GiB\) on startup\. "
        r"Desired GPU memory utilization is \(#, (?P<requested>#) GiB\)",
        r"Actual usage is # GiB for weight, (?P<peak>#) GiB for peak activation(?:, (?P<beside>#) GiB for non-torch)?",
        r"(?P<consumed>#) GiB for consumed memory \(weights \+ non-torch\), (?P<peak>#) GiB for peak activation",
        r"(?P<graphs>#) GiB for CUDAGraph memory",
    )
)


class Printed:
    """Follows a start through its output. Of several devices' figures the one that leaves least room counts."""

    def __init__(self) -> None:
        self._found: dict[str, float] = {}

    def take(self, line: str) -> EngineMemory | None:
        """All that is known after this line; None when it says nothing of memory."""
        if not any(word in line for word in ("GiB", "KV cache size", "concurrency")):
            return None  # most lines
        told = [match for pattern in LINES if (match := pattern.search(line))]
        for match in told:
            for name, text in match.groupdict("").items():
                try:
                    value = float(text.replace(",", "")) * (1 if name in COUNTS else GIB)
                except ValueError:  # "1.2.3": not a line of vLLM's; or it does not tell this
                    continue
                pick = min if name in ("kv", *COUNTS) else max
                self._found[name] = pick(value, self._found.get(name, value))
        return self.memory if told else None

    @property
    def memory(self) -> EngineMemory:
        """The figures as parts: those within the engine's share add up to it.

        What is left of its share without the cache, weights and activations was set aside for graphs, or is `overhead`:
        what lies beside torch, and what was set aside for graphs above what they took. 0.26 sets nothing aside where
        its newer model runner computes, and its graphs then lie beside the share.
        """
        found = self._found
        weights, graphs, peak = (_bytes(found.get(name)) for name in ("weights", "graphs", "peak"))
        # The newer form counts the graphs that it expects among the activations.
        expected = found.get("planned", 0) if "consumed" in found else 0
        activations = None if peak is None else max(0, peak - int(expected))
        overhead = set_aside = None
        if {"requested", "kv"} <= found.keys() and None not in (weights, graphs, activations):
            left = int(found["requested"] - found["kv"]) - weights - activations
            overhead = max(0, min(left, int(found.get("beside", 0))), left - graphs)
            set_aside = max(0, left - overhead)
        return EngineMemory(
            weights=weights,
            activations=activations,
            graphs=graphs,
            overhead=overhead,
            kv_bytes=_bytes(found.get("kv")),
            kv_tokens=_count(found.get("tokens")),
            context=_count(found.get("context")),
            concurrency=found.get("concurrency"),
            total=_bytes(found.get("total")),
            set_aside=set_aside,
        )


def _bytes(value: float | None) -> int | None:
    return None if value is None else max(0, int(value))


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)
