"""How long what serves has had nothing to do, told by its figures."""

from workbench.engine_events import EngineSample


class Idle:
    """Follows the samples of one engine, or of several that serve together: they are idle when all are.

    A poll without an answer may be one of a busy engine: it counts as work.
    """

    def __init__(self) -> None:
        self._last: dict[str, EngineSample] = {}
        self._since_s = 0.0

    def seconds(self, sample: EngineSample, leg: str = "") -> float:
        """Take the next sample, of `leg` where there are several; the seconds since the last work, on their clock."""
        last, self._last[leg] = self._last.get(leg), sample
        if last is None or sample.running != 0 or sample.waiting or _tokens(sample) != _tokens(last):
            self._since_s = sample.at_s
        return sample.at_s - self._since_s


def _tokens(sample: EngineSample) -> tuple[float | None, float | None]:
    """Counters that move with each request, also with one that came and went between two polls."""
    return sample.prompt_tokens, sample.generated_tokens
