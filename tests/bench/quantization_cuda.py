"""One GPU: tiny models of each family, then two blocks of Qwen2-7B's shape with random weights, timed."""

import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
from quantization_models import TEXT, quantized, write_model

from workbench.quant_events import ModuleDone, QualityMeasured


def main() -> None:
    print(torch.cuda.get_device_name(), torch.__version__)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for family in ("llama", "qwen2", "qwen3", "mistral"):
            source = write_model(place / family, family)
            cpu, gpu = (
                quantized(source, place / f"{family}-{device}", "best", device=device) for device in ("cpu", "cuda")
            )
            errors = [[event.output_error for event in run if isinstance(event, ModuleDone)] for run in (cpu, gpu)]
            print(family, "largest difference of an error, CPU to GPU:", max(map(lambda a, b: abs(a - b), *errors)))
        shape = {
            "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_key_value_heads": 4,
            "head_dim": 128, "vocab_size": 8192,
        }  # fmt: skip
        source = write_model(place / "large", "qwen2", **shape)
        (place / "calibration text.txt").write_text("\n<|document|>\n".join(TEXT * 6 for _ in range(120)))
        torch.cuda.reset_peak_memory_stats()
        began = time.monotonic()
        for event in quantized(source, place / "large-int4", "best", device="cuda"):
            if isinstance(event, ModuleDone):
                print(f"{event.name:40} {event.seconds:6.2f} s  error {event.output_error:.5f}")
            elif isinstance(event, QualityMeasured):
                print(event)
        print(f"{time.monotonic() - began:.1f} s in all, GPU peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GB")


if __name__ == "__main__":
    main()
