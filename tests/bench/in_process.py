"""The environment in which vLLM computes in a bench's own process, on a processor."""

import sys
from pathlib import Path

OPENMP = Path(sys.prefix) / "lib" / "libiomp5.so"  # without it drafting runs four times slower
ENV = {
    "LATHE_ENGINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
    "TORCHDYNAMO_DISABLE": "1", "KMP_BLOCKTIME": "1", "LD_PRELOAD": str(OPENMP) if OPENMP.exists() else "",
}  # fmt: skip
