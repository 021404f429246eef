"""How many tokens an answer will take, so that an engine with priority scheduling lets short answers pass long ones.

Shortest expected job first: the mean wait is least when the job that will end soonest goes first. What a reply will
take is not known beforehand; two things bound it, the most tokens that it may have and how long this conversation's
answers have been.
"""

from collections.abc import Iterable

from workbench.chat.conversation import Conversation
from workbench.events import ReplyDone

RECENT = 8  # answers; what was talked about earlier says little about the next one
UNLIMITED = 4096  # tokens, where neither the request nor an earlier answer says any length


def expected_tokens(max_tokens: int | None, earlier: Iterable[ReplyDone]) -> int:
    """The tokens to expect of the next answer, at least 1; `earlier` are this conversation's answers in their order.

    The mean of the last ones, never more than `max_tokens`; without any, all of `max_tokens`. An answer that its limit
    cut off would have gone on: it counts as one of `max_tokens` where that is more. One that the user stopped says
    nothing.
    """
    limit = max_tokens or UNLIMITED
    lengths = [
        max(done.tokens, limit) if done.reason == "length" else done.tokens
        for done in earlier
        if done.tokens and done.reason != "stopped"
    ][-RECENT:]
    mean = round(sum(lengths) / len(lengths)) if lengths else limit
    return max(1, min(limit, mean))


def priority(max_tokens: int | None, conversation: Conversation, side: str) -> int:
    """The priority of the next request to `side`, as vLLM takes it: the lowest number goes first."""
    replies = (turn.replies[side] for turn in conversation.turns if side in turn.replies)
    return expected_tokens(max_tokens, (reply.done for reply in replies if reply.done))
