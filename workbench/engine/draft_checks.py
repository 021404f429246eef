"""What speaks for or against a draft or head: its tokens, its width, its path, its precision; memory and gain apart."""

from collections.abc import Iterator
from dataclasses import dataclass

from workbench import figures
from workbench.catalog import vocabulary
from workbench.catalog.devices import Device
from workbench.catalog.model import Model
from workbench.catalog.problem import SERVE
from workbench.engine import formats, heads
from workbench.engine.facts import EngineFacts
from workbench.engine.heads import Head
from workbench.engine.profile import Profile
from workbench.engine.speculation import HEADS, METHODS, NAMES, Speculation
from workbench.words import Sentence

FITS, ADAPT, POOR, REFUSED = "fits", "adapt", "poor", "refused"
RANKS = (FITS, ADAPT, POOR, REFUSED)


@dataclass(frozen=True, slots=True)
class Reason:
    """One finding. `estimated` is what only arithmetic says, and the engine may see otherwise."""

    verdict: str
    sentence: Sentence
    hint: Sentence | None = None
    estimated: bool = False


def servable(
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
    if method in METHODS and facts and facts.drafting and method not in facts.drafting:
        values = {"version": facts.version, "word": method}
        yield Reason(REFUSED, Sentence("vLLM {version} cannot draft with {word}.", values))
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


def of_head(target: Model, head: Head) -> Iterator[Reason]:
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
    yield from multiple(head)


def multiple(head: Head) -> Iterator[Reason]:
    if head.depth and head.depth > 1:
        told = Sentence("More than {depth} tokens a step must be a multiple of {depth}.", {"depth": head.depth})
        yield Reason(FITS, told)


def limits(chosen: Speculation, head: Head | None) -> Iterator[Reason]:
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


def of_tokens(target: Model, draft: Model) -> Iterator[Reason]:
    """Whether a token's number means the same in both."""
    match = vocabulary.match(target.folder, draft.folder)
    if match is None:
        if not vocabulary.same_files(target.folder, draft.folder):
            yield Reason(
                REFUSED,
                Sentence("Its tokens cannot be compared with the model's: no tokenizer.json or vocab.json lists them."),
                Sentence("Copy tokenizer.json from where each model came from."),
            )
            return
        yield from _sizes(target, draft, None)
        return
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
            COPY if target.vocab == draft.vocab else None,  # said already
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


def of_context(target: Model, draft: Model, profile: Profile) -> Iterator[Reason]:
    wanted = profile.context or target.context
    if wanted and draft.context < wanted:
        values = {"draft": figures.tokens(draft.context), "model": figures.tokens(wanted)}
        yield Reason(FITS, Sentence("Beyond {draft} tokens it drafts nothing; the context is {model}.", values))
