"""How much of what the decode engines answered from was read by the prefill engines, by their own counters."""

from workbench import figures
from workbench.engine.separation import role_of
from workbench.runs import EngineRun
from workbench.words import Sentence


def told(run: EngineRun) -> Sentence | None:
    """Since the start, of all engines behind this front; None before a prompt came, or where none of them tells."""
    samples = [leg.sample for leg in writers(run) if leg.sample]
    counted = [each for each in samples if each.external_tokens is not None and each.prompt_tokens]
    if not counted:
        return None
    values = {
        "handed": figures.tokens(sum(each.external_tokens for each in counted)),
        "prompt": figures.tokens(sum(each.prompt_tokens for each in counted)),
    }
    return Sentence("{handed} of {prompt} prompt tokens came from the prefill engine.", values)


def writers(run: EngineRun) -> list[EngineRun]:
    """The engines that write the answers: the decode engines behind a front, else the engine itself."""
    return [leg for name, leg in run.legs.items() if role_of(name) == "decode"] if run.legs else [run]
