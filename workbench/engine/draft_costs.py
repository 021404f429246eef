"""A draft beside its target on one device: what both take of its memory, and what drafting can gain."""

from collections.abc import Iterator
from dataclasses import replace

from workbench import figures
from workbench.catalog.capacity import Capacity, Device, capacity
from workbench.catalog.model import Model
from workbench.engine import payoff
from workbench.engine.draft_checks import FITS, POOR, REFUSED, Reason
from workbench.engine.fit import fit, precision
from workbench.engine.heads import Head
from workbench.engine.profile import Profile
from workbench.engine.speculation import Speculation
from workbench.words import Sentence

USUAL_TOKENS = 4
ANYTIME = 1.05  # a draft that promises less is not worth its memory


class Both:
    """Target and draft together on one device."""

    def __init__(self, target: Model, draft: Model, head: Head | None, profile: Profile, device: Device):
        # One byte a second: the roofline is then the reciprocal of the bytes that are read for a token.
        slow = replace(device, bandwidth_bytes_s=1.0)
        self.tokens = profile.speculation.tokens if profile.speculation else USUAL_TOKENS
        if head and head.most:
            self.tokens = min(self.tokens, head.most)
        self.target: Capacity = fit(target, replace(profile, speculation=None), slow)
        method = head.method if head else "draft_model"
        drafting = Speculation(method, self.tokens, draft.folder)
        self.together: Capacity = fit(target, replace(profile, speculation=drafting), device)
        width = self.target.value_bytes
        self.draft: Capacity = capacity(draft, slow, precision(draft), self.target.context, value_bytes=width)
        read = _head_reads(target, draft) * width if head else _read(self.draft)
        once = head is not None and (head.method == "medusa" or head.parallel)
        self.cost = read / _read(self.target) / (self.tokens if once else 1) if _read(self.target) else None
        self.speedup = None if self.cost is None else payoff.expected(self.cost, self.tokens)

    def memory(self) -> Iterator[Reason]:
        needed = self.target.weights + self.target.overhead + self.draft.weights
        if needed > self.target.available:
            values = {"needed": figures.bytes_of(needed), "available": figures.bytes_of(self.target.available)}
            told = Sentence("Too large beside the model: both need {needed} and {available} are free.", values)
            yield Reason(REFUSED, told, estimated=True)
            return
        found = self.together
        values = {
            "weights": figures.bytes_of(self.draft.weights),
            "tokens": figures.tokens(found.tokens_that_fit),
            "context": figures.tokens(found.context),
        }
        alone = self.target.kv_bytes is not None and self.target.kv_bytes > self.target.kv_budget
        if found.kv_bytes is not None and found.kv_bytes > found.kv_budget and not alone:  # else no fault of the draft
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
        if self.speedup < ANYTIME:
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


def _head_reads(target: Model, head: Model) -> int:
    """Values that a head reads for a token: all but the embedding, and the model's own head where it has none."""
    own = sum(each.elements for each in head.tensors if "embed_tokens" not in each.name)
    shares = not any("lm_head" in each.name for each in head.tensors)
    return own + (target.vocab or 0) * (target.hidden or 0) * shares


def _read(found: Capacity) -> float:
    return 1 / found.roofline_tok_s if found.roofline_tok_s else 0.0
