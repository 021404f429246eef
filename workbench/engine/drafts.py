"""What could draft for a model: every way and every local model or head, each with a verdict and its reasons.

Judged from configurations, headers and tokenizer files alone; the rules of the engine are those of vLLM 0.32's sources.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.catalog.capacity import Device
from workbench.catalog.folder import Unreadable, inspect
from workbench.catalog.model import Model
from workbench.engine import draft_checks, heads
from workbench.engine.draft_checks import ADAPT, FITS, POOR, RANKS, REFUSED, Reason
from workbench.engine.draft_costs import Both
from workbench.engine.facts import EngineFacts
from workbench.engine.heads import Head
from workbench.engine.profile import Profile
from workbench.engine.speculation import FIXED, SAMPLED, Speculation
from workbench.errors import WorkbenchError
from workbench.words import Sentence

MARKS = {FITS: "✓", ADAPT: "≈", POOR: "–", REFUSED: "✕"}
_ARCTIC = "arctic-inference==0.1.1"  # the version that vLLM 0.32 asks for


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to draft: `folder` is None for those that need none. `name` is shown.

    `most` is the largest number of tokens it can draft a step, `cost` that of one of them in steps of the target, and
    `speedup` what 4 of 5 accepted tokens would give; None where that is not known.
    """

    name: str
    method: str
    folder: Path | None
    reasons: tuple[Reason, ...]
    most: int | None = None
    cost: float | None = None
    speedup: float | None = None
    parallel: bool = False

    @property
    def verdict(self) -> str:
        return max((reason.verdict for reason in self.reasons), key=RANKS.index, default=FITS)

    @property
    def telling(self) -> Reason | None:
        """The reason for the verdict, the first of its rank."""
        return next((reason for reason in self.reasons if reason.verdict == self.verdict), None)

    @property
    def ordered(self) -> tuple[Reason, ...]:
        """The reasons with those of the verdict first; of one that cannot draft only why."""
        told = [each for each in self.reasons if self.verdict != REFUSED or each.verdict == REFUSED]
        return tuple(sorted(told, key=lambda each: -RANKS.index(each.verdict)))

    @property
    def barrier(self) -> Reason | None:
        """Why it cannot draft at all; what is only estimated rules nothing out."""
        return next((each for each in self.reasons if each.verdict == REFUSED and not each.estimated), None)

    def check(self) -> None:
        """Raise why it cannot draft."""
        if self.barrier:
            raise _error(self.barrier)

    @property
    def adaptable(self) -> bool:
        """Whether a copy with the model's vocabulary would serve, and until then only mixed vocabularies."""
        return self.barrier is None and any(reason.verdict == ADAPT for reason in self.reasons)

    def speculation(self, chosen: Speculation | None = None) -> Speculation:
        """This way as a profile's choice, with the numbers of `chosen` where it can have them."""
        base = chosen or Speculation()
        tokens = min(base.tokens, self.most or base.tokens)
        steps = () if self.method in FIXED else tuple((limit, min(k, tokens)) for limit, k in base.steps)
        sampling = base.sampling if self.method in SAMPLED else "greedy"
        mixed = self.adaptable
        return replace(
            base, method=self.method, draft=self.folder, tokens=tokens, steps=steps, mixed=mixed,
            sampling="greedy" if mixed else sampling, parallel=self.parallel,
        )  # fmt: skip


def listing(
    target: Model, profile: Profile, found: Iterable[Model | Unreadable], device: Device, facts: EngineFacts | None
) -> list[Candidate]:
    """Every way to draft for `target`, the promising first; `found` are the models and heads at hand."""
    others = [each for each in found if each.folder.resolve() != target.folder.resolve()]
    judged = [
        _unreadable(each) if isinstance(each, Unreadable) else judge(target, each, profile, device, facts)
        for each in others
    ]
    if own := heads.own_layers(target):
        judged.append(_own(target, own))
    judged.sort(key=lambda each: (RANKS.index(each.verdict), -(each.speedup or 0), each.name.lower()))
    return [_ngram(), _suffix(facts), *judged]


def judge(target: Model, draft: Model, profile: Profile, device: Device, facts: EngineFacts | None = None) -> Candidate:
    """Whether `draft` can draft for `target` as `profile` serves it, and whether that can pay."""
    head = heads.read(draft)
    method = head.method if head else "draft_model"
    reasons = list(draft_checks.servable(draft, method, facts, profile, device))
    reasons += draft_checks.of_head(target, head) if head else draft_checks.of_tokens(target, draft)
    if draft.context and head is None:
        reasons += draft_checks.of_context(target, draft, profile)
    if any(reason.verdict == REFUSED for reason in reasons):
        return Candidate(draft.name, method, draft.folder, tuple(reasons))
    both = Both(target, draft, head, profile, device)
    reasons += both.memory()
    reasons += both.pay()
    most = head.most if head else None
    return Candidate(
        draft.name, method, draft.folder, tuple(reasons), most, both.cost, both.speedup, bool(head and head.parallel)
    )


def settle(profile: Profile, facts: EngineFacts) -> Profile:
    """The profile with the method that its draft's folder is made for; a WorkbenchError where they cannot go together.

    What is only estimated, memory and gain, stops nothing.
    """
    chosen = profile.speculation
    if chosen is None:
        return profile
    if chosen.method == "suffix" and (missing := _suffix(facts).telling) and missing.verdict == REFUSED:
        raise _error(missing)
    if chosen.draft is None:
        if chosen.method == "mtp" and heads.own_layers(inspect(profile.model)) is None:
            raise WorkbenchError(
                "{name} holds no layers for MTP.", "Choose another way of drafting, or the folder of an MTP head.",
                name=profile.model.name,
            )  # fmt: skip
        return profile
    target, draft = inspect(profile.model), inspect(chosen.draft)
    head = heads.read(draft)
    settled = heads.settled(chosen, head)
    reasons = [*draft_checks.servable(draft, settled.method, facts, profile, None), *draft_checks.limits(settled, head)]
    reasons += draft_checks.of_head(target, head) if head else draft_checks.of_tokens(target, draft)
    for reason in reasons:
        if reason.verdict == REFUSED or (reason.verdict == ADAPT and not settled.mixed):
            raise _error(reason)
    return replace(profile, speculation=settled)


def _error(reason: Reason) -> WorkbenchError:
    hint = reason.hint or Sentence("")
    return WorkbenchError(reason.sentence.template, hint.template, **reason.sentence.values | hint.values)


def _ngram() -> Candidate:
    told = Sentence("Needs no model: repeats what followed the same words before. Pays where answers quote the prompt.")
    return Candidate("n-gram", "ngram", None, (Reason(FITS, told),), cost=0.0)


def _suffix(facts: EngineFacts | None) -> Candidate:
    if facts and not facts.suffix:
        reason = Reason(
            REFUSED,
            Sentence("The package arctic-inference is not in the engine's environment."),
            Sentence("Install it there: {command}", {"command": f"{facts.python} -m pip install {_ARCTIC}"}),
        )
    else:
        told = Sentence("Needs no model: remembers earlier answers as well. Pays where requests resemble each other.")
        reason = Reason(FITS, told)
    return Candidate("suffix", "suffix", None, (reason,), cost=0.0)


def _own(target: Model, own: Head) -> Candidate:
    told = Sentence("The checkpoint itself holds layers for MTP, trained with the model.")
    return Candidate(target.name, "mtp", None, (Reason(FITS, told), *draft_checks.multiple(own)))


def _unreadable(found: Unreadable) -> Candidate:
    error = found.error
    reason = Reason(REFUSED, Sentence(error.message, error.values), Sentence(error.hint_template, error.values))
    return Candidate(found.folder.name, "draft_model", found.folder, (reason,))
