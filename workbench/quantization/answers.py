"""Short greedy answers of a model, block by block without an engine: does it still make sentences?"""

import psutil
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from workbench.quantization.blocks import Skeleton

PROMPTS = ("What is the capital of France?", "Name three animals that can fly.", "Why is the sky blue?")
TOKENS = 32
SHARE_OF_MEMORY = 0.25  # of what is free: all blocks are held in float32 for this


def fits(skeleton: Skeleton, parameters: int) -> bool:
    """Whether the whole model may be held for a moment."""
    if skeleton.device.type == "cuda":
        free = torch.cuda.mem_get_info(skeleton.device)[0]
    else:
        free = psutil.virtual_memory().available
    return 4 * parameters < SHARE_OF_MEMORY * free


@torch.no_grad()
def greedy(skeleton: Skeleton, tokenizer: PreTrainedTokenizerBase, ends: tuple[int, ...]) -> list[list[int]]:
    """The most likely continuation of each prompt, up to an end token or TOKENS."""
    skeleton.prove()
    blocks = [skeleton.load(index) for index in range(len(skeleton))]
    norm, head = skeleton.last()
    answers = []
    for prompt in PROMPTS:
        ids = _ids(tokenizer, prompt)
        answer: list[int] = []
        while len(answer) < TOKENS:
            state = skeleton.embed([torch.tensor([ids + answer])])[0].to(skeleton.device)
            for block in blocks:
                state = skeleton.forward(block, state)
            following = int((norm(state[0, -1:]) @ head.T).argmax())
            if following in ends:
                break
            answer.append(following)
        answers.append(answer)
    return answers


def repetition(answers: list[list[int]]) -> float:
    """The share of three tokens in a row that were there before in the same answer, over all answers."""
    total = repeated = 0
    for answer in answers:
        runs = [tuple(answer[at : at + 3]) for at in range(len(answer) - 2)]
        total += len(runs)
        repeated += len(runs) - len(set(runs))
    return repeated / total if total else 0.0


def _ids(tokenizer: PreTrainedTokenizerBase, prompt: str) -> list[int]:
    if tokenizer.chat_template:
        turn = [{"role": "user", "content": prompt}]
        try:
            text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
            return tokenizer(text, add_special_tokens=False)["input_ids"]
        except Exception:  # templates raise whatever they like; then the bare prompt must do
            pass
    ids: Tensor | list[int] = tokenizer(prompt)["input_ids"]
    return list(ids)
