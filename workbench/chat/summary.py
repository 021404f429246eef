"""What is said under a reply: its figures, how it ended, where the two sides part."""

from workbench import figures
from workbench.events import ReplyDone
from workbench.measure.timing import Difference
from workbench.runs import Reply
from workbench.words import Sentence


def figures_line(done: ReplyDone) -> Sentence:
    """The figures of one reply, a dash where one was not measured."""
    return Sentence(
        "{ttft} s · {speed} tok/s · {tokens} {tokens:token|tokens} · {accepted} accepted/step",
        {
            "ttft": figures.seconds(done.ttft_s),
            "speed": figures.number(done.tokens_per_s),
            "tokens": figures.tokens(done.tokens),
            "accepted": figures.number(done.mean_accepted, 2),
        },
    )


def notes(reply: Reply, together: bool = False) -> list[tuple[Sentence, bool]]:
    """The sentences under a reply, each with whether it is an alarm. `together`: the other side answered meanwhile."""
    said: list[tuple[Sentence, bool]] = []
    if reply.done and (reply.done.tokens is not None or reply.done.ttft_s is not None):
        said.append((figures_line(reply.done), False))
        if together:
            said.append((Sentence("Timed while the other side answered too: each slows the other."), False))
    if reply.state == "stopped":
        said.append((Sentence("Stopped."), False))
    elif reply.state == "interrupted":
        said.append((Sentence("Interrupted: Lathe ended before the answer did."), True))
    elif reply.done and reply.done.reason == "length":
        said.append((Sentence("Cut off at the length limit."), False))
    elif reply.done and reply.done.reason == "tool_calls":
        said.append((Sentence("The model calls a tool. Lathe runs none: programs that use the engine do."), False))
    if reply.error:
        said.append((Sentence(reply.error.message, reply.error.values), True))
        if reply.error.hint:
            said.append((Sentence(reply.error.hint, reply.error.values), False))
    return said


def difference_note(difference: Difference | None) -> Sentence:
    """How far two answers agree."""
    if difference is None:
        return Sentence("Both sides say the same, word for word.")
    if difference.words == 0:
        return Sentence("The sides differ from the first word on.")
    return Sentence(
        "Same for {count} {count:word|words}, then they part at the mark.", {"count": f"{difference.words:,}"}
    )
