"""What could draft for a model: every way and every local model or head, each with a verdict and its reasons.

Judged from configurations, headers and tokenizer files alone; the rules of the engine are those of vLLM 0.32's sources.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from workbench import figures
from workbench.catalog import vocabulary
from workbench.catalog.capacity import Capacity, Device, capacity
from workbench.catalog.folder import Unreadable, inspect
from workbench.catalog.model import Model
from workbench.catalog.problem import SERVE
from workbench.engine import formats, heads, payoff
from workbench.engine.facts import EngineFacts
from workbench.engine.fit import fit, precision
from workbench.engine.heads import Head
from workbench.engine.profile import Profile
from workbench.engine.speculation import HEADS, METHODS, NAMES, Speculation
from workbench.errors import WorkbenchError
from workbench.words import Sentence

FITS, ADAPT, POOR, REFUSED = "fits", "adapt", "poor", "refused"
RANKS = (FITS, ADAPT, POOR, REFUSED)
_USUAL_TOKENS = 4
_ANYTIME = 1.05  # a draft that promises less is not worth its memory


@dataclass(frozen=True, slots=True)
class Reason:
    """One finding. `estimated` is what only arithmetic says, and the engine may see otherwise."""

    verdict: str
    sentence: Sentence
    hint: Sentence | None = None
    estimated: bool = False


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
    def adaptable(self) -> bool:
        """Whether a copy with the model's vocabulary would serve, and until then only mixed vocabularies."""
        return self.verdict != REFUSED and any(reason.verdict == ADAPT for reason in self.reasons)

    def speculation(self, chosen: Speculation | None = None) -> Speculation:
        """This way as a profile's choice, with the numbers of `chosen` where it can have them."""
        base = chosen or Speculation()
        tokens = min(base.tokens, self.most or base.tokens)
        steps = () if self.method in ("medusa",) else tuple((limit, min(k, tokens)) for limit, k in base.steps)
        sampling = base.sampling if self.method in ("draft_model", "eagle", "eagle3", "mtp") else "greedy"
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
    reasons = list(_servable(draft, method, facts, profile, device))
    reasons += _head(target, head) if head else _tokens(target, draft)
    if draft.context and head is None:
        reasons += _context(target, draft, profile)
    if any(reason.verdict == REFUSED for reason in reasons):
        return Candidate(draft.name, method, draft.folder, tuple(reasons))
    both = _Both(target, draft, head, profile, device)
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
    reasons = [*_servable(draft, settled.method, facts, profile, None), *_limits(settled, head)]
    reasons += _head(target, head) if head else _tokens(target, draft)
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
            Sentence(
                "Install it there: {command}", {"command": f"{facts.python} -m pip install arctic-inference==0.1.1"}
            ),
        )
    else:
        told = Sentence("Needs no model: remembers earlier answers as well. Pays where requests resemble each other.")
        reason = Reason(FITS, told)
    return Candidate("suffix", "suffix", None, (reason,), cost=0.0)


def _own(target: Model, own: Head) -> Candidate:
    told = Sentence("The checkpoint itself holds layers for MTP, trained with the model.")
    return Candidate(target.name, "mtp", None, (Reason(FITS, told), *_multiple(own)))


def _unreadable(found: Unreadable) -> Candidate:
    error = found.error
    reason = Reason(REFUSED, Sentence(error.message, error.values), Sentence(error.hint_template, error.values))
    return Candidate(found.folder.name, "draft_model", found.folder, (reason,))


def _servable(
    draft: Model, method: str, facts: EngineFacts | None, profile: Profile, device: Device | None
) -> Iterator[Reason]:
    """What rules the folder out before it is held against its target."""
    for problem in draft.blocking(SERVE):
        yield Reason(REFUSED, problem.sentence, problem.hint)
    if method not in METHODS:
        name = NAMES.get(method, method)
        yield Reason(REFUSED, Sentence("A head for {method}, which is not offered here.", {"method": name}))
    elif part := heads.mistaken(str(draft.folder), method):
        values = {"part": part[0], "method": NAMES[part[1]], "path": str(draft.folder)}
        yield Reason(
            REFUSED,
            Sentence("vLLM takes every folder with “{part}” in its path for a head of {method}: {path}.", values),
            Sentence("Rename or move the folder."),
        )
    stored = draft.quantization
    if stored and facts and (refused := formats.refusal(stored, facts)):
        yield Reason(REFUSED, refused.sentence, refused.hint)
    on_cpu = facts.cpu if facts else device is not None and device.kind == "cpu"
    if stored and stored.half_only and on_cpu and profile.dtype in ("auto", "float32"):
        # A draft computes in its target's type, which on a CPU is float32 unless told otherwise.
        yield Reason(
            REFUSED,
            Sentence("Its weights ({described}) need a 16-bit type, and the model is computed in float32.",
                     {"described": stored.sentence}),
            Sentence("Choose bfloat16 as the computing type."),
        )  # fmt: skip


def _head(target: Model, head: Head) -> Iterator[Reason]:
    if head.method not in HEADS:
        return
    values = {"method": NAMES[head.method]}
    if head.hidden and target.hidden and head.hidden != target.hidden:
        sizes = {"head": head.hidden, "model": target.hidden}
        yield Reason(
            REFUSED, Sentence("The head reads states of width {head}; those of this model are {model} wide.", sizes)
        )
        return
    if head.vocab and target.vocab and head.vocab != target.vocab:
        sizes = {"head": figures.tokens(head.vocab), "model": figures.tokens(target.vocab)}
        yield Reason(REFUSED, Sentence("The head was made for {head} tokens; this model has {model}.", sizes))
        return
    fed = head.reads(target.layers or 0)
    if target.layers and len({layer for layer in fed if 0 <= layer <= target.layers}) < len(fed):
        numbers = {"layers": ", ".join(map(str, fed)), "count": target.layers}
        yield Reason(REFUSED, Sentence("It reads the layers {layers}; this model has {count}.", numbers))
        return
    yield Reason(
        FITS,
        Sentence(
            "A head for {method}, of this model's width. Acceptance will show whether it was trained for this one.",
            values,
        ),
    )
    if head.most:
        yield Reason(FITS, Sentence("It has layers for {most} tokens a step.", {"most": head.most}))
    yield from _multiple(head)


def _multiple(head: Head) -> Iterator[Reason]:
    if head.depth and head.depth > 1:
        told = Sentence("More than {depth} tokens a step must be a multiple of {depth}.", {"depth": head.depth})
        yield Reason(FITS, told)


def _limits(chosen: Speculation, head: Head | None) -> Iterator[Reason]:
    """What the number of drafted tokens must obey."""
    if head and head.most and chosen.tokens > head.most:
        values = {"most": head.most, "tokens": chosen.tokens}
        yield Reason(
            REFUSED,
            Sentence("This head has layers for {most} tokens a step, not for {tokens}.", values),
            Sentence("Draft at most {most} tokens.", values),
        )
    if head and head.depth and chosen.tokens > head.depth and chosen.tokens % head.depth:
        yield Reason(
            REFUSED, Sentence("More than {depth} tokens a step must be a multiple of {depth}.", {"depth": head.depth})
        )


def _tokens(target: Model, draft: Model) -> Iterator[Reason]:
    """Whether a token's number means the same in both."""
    known = [vocabulary.read(model.folder) for model in (target, draft)]
    if None in known:
        if not vocabulary.same_files(target.folder, draft.folder):
            yield Reason(
                REFUSED,
                Sentence("Its tokens cannot be compared with the model's: no tokenizer.json or vocab.json lists them."),
                Sentence("Copy tokenizer.json from where each model came from."),
            )
            return
        yield from _sizes(target, draft, None)
        return
    match = vocabulary.compare(*known)
    if match.kind == "other":
        values = {"alike": figures.tokens(match.alike), "total": figures.tokens(match.total)}
        yield Reason(
            REFUSED,
            Sentence("The tokenizers differ: {alike} of the model's {total} tokens have the same number.", values),
            Sentence("Choose a draft of the model's own family."),
        )
        return
    yield from _sizes(target, draft, match)
    if match.moved:
        values = {"count": len(match.moved), "name": match.moved[0]}
        yield Reason(
            ADAPT,
            Sentence(
                "{count} added {count:token has another number|tokens have other numbers} than in the model, such as "
                "{name}.",
                values,
            ),
            COPY,
        )
    if match.absent:
        values = {"count": len(match.absent), "name": match.absent[0]}
        yield Reason(
            FITS,
            Sentence(
                "It does not know {count} added {count:token|tokens}, such as {name}, and guesses worse there.", values
            ),
        )
    if not match.cut_alike:
        yield Reason(
            POOR, Sentence("It cuts text into tokens differently (merges or normalizer), so it learnt other sequences.")
        )


COPY = Sentence("Make the adapted copy, or switch mixed vocabularies on: vLLM then maps them, with greedy drafts only.")


def _sizes(target: Model, draft: Model, match: vocabulary.Match | None) -> Iterator[Reason]:
    if target.vocab != draft.vocab and target.vocab and draft.vocab:
        sizes = {"draft": figures.tokens(draft.vocab), "model": figures.tokens(target.vocab)}
        sizes |= {"count": figures.tokens(abs(target.vocab - draft.vocab))}
        told = Sentence(
            "Same tokenizer, but the weights have {draft} rows and the model's {model}: {count} of padding.", sizes
        )
        yield Reason(ADAPT, told, COPY)
    elif match is None or match.kind == "same":
        values = {"total": figures.tokens(match.total if match else target.vocab)}
        yield Reason(FITS, Sentence("Same tokenizer: {total} tokens with the same numbers.", values))


def _context(target: Model, draft: Model, profile: Profile) -> Iterator[Reason]:
    wanted = profile.context or target.context
    if wanted and draft.context < wanted:
        values = {"draft": figures.tokens(draft.context), "model": figures.tokens(wanted)}
        yield Reason(FITS, Sentence("Beyond {draft} tokens it drafts nothing; the context is {model}.", values))


class _Both:
    """Target and draft together on one device."""

    def __init__(self, target: Model, draft: Model, head: Head | None, profile: Profile, device: Device):
        # One byte a second: the roofline is then the reciprocal of the bytes that are read for a token.
        slow = replace(device, bandwidth_bytes_s=1.0)
        self.head, self.device = head, device
        self.tokens = profile.speculation.tokens if profile.speculation else _USUAL_TOKENS
        if head and head.most:
            self.tokens = min(self.tokens, head.most)
        self.target: Capacity = fit(target, replace(profile, speculation=None), slow)
        width = self.target.value_bytes
        self.draft: Capacity = capacity(draft, slow, precision(draft), self.target.context, value_bytes=width)
        read = _read(self.draft)
        if head and not any("lm_head" in each.name for each in draft.tensors):
            read += (target.vocab or 0) * (target.hidden or 0) * width  # it uses the model's own
        once = head is not None and (head.method == "medusa" or head.parallel)
        self.cost = read / _read(self.target) / (self.tokens if once else 1) if _read(self.target) else None
        self.speedup = None if self.cost is None else payoff.expected(self.cost, self.tokens)

    def memory(self) -> Iterator[Reason]:
        needed = self.target.weights + self.target.overhead + self.draft.weights
        available = self.target.available
        fixed = self.target.kv_budget if self._kv_is_fixed(needed, available) else max(0, available - needed)
        if needed > available:
            values = {"needed": figures.bytes_of(needed), "available": figures.bytes_of(available)}
            yield Reason(
                REFUSED,
                Sentence("Too large beside the model: both need {needed} and {available} are free.", values),
                estimated=True,
            )
            return
        per_token = (self.target.kv_bytes_per_token or 0) + (self._kv_per_token or 0)
        context = self.target.context
        fitting = fixed // per_token if per_token else None
        values = {
            "weights": figures.bytes_of(self.draft.weights),
            "tokens": figures.tokens(fitting),
            "context": figures.tokens(context),
        }
        if fitting is not None and context and fitting < context:
            told = Sentence("With it the KV cache holds {tokens} tokens; the context is {context}.", values)
            yield Reason(REFUSED, told, Sentence("Choose a shorter context."), estimated=True)
        else:
            yield Reason(FITS, Sentence("It takes {weights}; the KV cache then holds {tokens} tokens.", values))

    def pay(self) -> Iterator[Reason]:
        if self.cost is None or self.speedup is None:
            return
        values = {
            "share": figures.percent(self.cost), "tokens": self.tokens, "speedup": figures.ratio(self.speedup),
            "accepted": figures.percent(payoff.HOPED),
        }  # fmt: skip
        if self.speedup < _ANYTIME:
            told = Sentence(
                "Not much smaller than the model: a drafted token costs {share} of a step, and even with {accepted} "
                "accepted, {tokens} a step give {speedup} the speed.",
                values,
            )
            yield Reason(POOR, told, estimated=True)
            return
        told = Sentence(
            "A drafted token costs {share} of a step: with {accepted} accepted, {tokens} a step give {speedup} the "
            "speed.",
            values,
        )
        yield Reason(FITS, told, estimated=True)

    @property
    def _kv_per_token(self) -> int | None:
        return 0 if self.head and self.head.method == "medusa" else self.draft.kv_bytes_per_token

    def _kv_is_fixed(self, needed: int, available: int) -> bool:
        """Whether the cache has a size of its own rather than all that is left."""
        return self.target.kv_budget < max(0, available - self.target.weights - self.target.overhead)


def _read(found: Capacity) -> float:
    return 1 / found.roofline_tok_s if found.roofline_tok_s else 0.0
