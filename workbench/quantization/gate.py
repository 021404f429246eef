"""Checks of a written result before it gets its name: each is an event, and one that fails marks the result."""

from collections.abc import Iterator
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from workbench.errors import WorkbenchError
from workbench.events import Event, Note, Stage
from workbench.plan import Plan
from workbench.quant_events import Checked, QualityMeasured
from workbench.quantization import answers, calibration, side_files, verify
from workbench.quantization.blocks import Skeleton
from workbench.quantization.checkpoint import Checkpoint

SIZE_SHARE = 0.005
KL_BOUND = 1.0  # nats per token; broken models lie at several, plain rounding to 4 bits far below
AGREEMENT_BOUND = 0.3
REPEATED, REPEATED_MORE = 0.6, 0.4  # of an answer's triples, and how much more than the original's


def structure(result: Checkpoint, plan: Plan) -> Iterator[Event]:
    """Every tensor as planned and finite. Raises WorkbenchError, naming what is wrong: such a result is worthless."""
    try:
        verify.check(result.folder, plan, result.names)
    except WorkbenchError as error:
        yield Checked("The folder holds what the plan says", False, error.message, error.values)
        raise
    count = len(result.names)
    yield Checked(
        "The folder holds what the plan says", True, "{count} {count:tensor|tensors}, all finite", {"count": count}
    )


def sides(source: Path, result: Checkpoint, plan: Plan) -> Iterator[Event]:
    """Size, tokenizer and chat template."""
    size, expected = result.size, plan.predicted_bytes
    yield Checked(
        "The size is as predicted", abs(size - expected) <= SIZE_SHARE * expected,
        "{size} bytes, {expected} were predicted", {"size": size, "expected": expected},
    )  # fmt: skip
    theirs, ours = calibration.tokenizer_of(source), calibration.tokenizer_of(result.folder)
    yield _same_tokens(theirs, ours)
    template = side_files.rendered(theirs)
    if template is not None:
        same = template == side_files.rendered(ours)
        yield Checked(
            "The chat template renders as the original's", same, "a conversation of {turns} {turns:turn|turns}",
            {"turns": len(side_files.CONVERSATION)},
        )  # fmt: skip


def quality(measured: QualityMeasured) -> Event:
    """Near enough to the original to be the same model."""
    passed = measured.kl <= KL_BOUND and measured.top1_agreement >= AGREEMENT_BOUND
    values = {
        "kl": f"{measured.kl:.4f}", "agreement": f"{measured.top1_agreement:.0%}",
        "most": f"{KL_BOUND:g}", "least": f"{AGREEMENT_BOUND:.0%}",
    }  # fmt: skip
    return Checked(
        "It stays near the original", passed,
        "KL {kl} nats per token (at most {most}), same first choice {agreement} (at least {least})", values,
    )  # fmt: skip


def sentences(skeleton: Skeleton, result: Checkpoint, plan: Plan) -> Iterator[Event]:
    """Greedy answers do not go round in circles, unless the original's do."""
    if not answers.fits(skeleton, plan.model.parameters or 0):
        yield Note("Its answers were not tried here: the whole model is too large for the memory.")
        return
    yield Stage("Trying a few answers")
    tokenizer, ends = calibration.tokenizer_of(result.folder), plan.model.eos_ids
    ours = answers.repetition(answers.greedy(Skeleton(result.folder, skeleton.device), tokenizer, ends))
    values = {"ours": f"{ours:.0%}", "count": len(answers.PROMPTS)}
    if ours <= REPEATED:
        yield Checked(
            "Its answers do not repeat themselves", True,
            "{ours} of the word triples in {count} {count:answer|answers} come again", values,
        )  # fmt: skip
        return
    theirs = answers.repetition(answers.greedy(skeleton, tokenizer, ends))
    yield Checked(
        "Its answers do not repeat themselves", ours <= theirs + REPEATED_MORE,
        "{ours} of the word triples in {count} {count:answer|answers} come again; {theirs} in the original's",
        values | {"theirs": f"{theirs:.0%}"},
    )  # fmt: skip


def _same_tokens(theirs: PreTrainedTokenizerBase, ours: PreTrainedTokenizerBase) -> Event:
    wrong = side_files.differing(theirs, ours)
    if wrong:
        return Checked("The tokenizer gives the original's numbers", False, "not for {text}", {"text": wrong})
    return Checked(
        "The tokenizer gives the original's numbers",
        True,
        "{count} {count:string|strings}",
        {"count": len(side_files.STRINGS)},
    )
