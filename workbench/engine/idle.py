"""How long an engine has had nothing to do, told by its figures."""

from workbench.engine_events import EngineSample


class Idle:
    """Follows the samples of one engine. A poll without an answer may be one of a busy engine: it counts as work."""

    def __init__(self) -> None:
        self._last: EngineSample | None = None
        self._since_s = 0.0

    def seconds(self, sample: EngineSample) -> float:
        """Take the next sample; the seconds since the last work, on the clock of the samples."""
        last, self._last = self._last, sample
        if last is None or sample.running != 0 or sample.waiting or _tokens(sample) != _tokens(last):
            self._since_s = sample.at_s
        return sample.at_s - self._since_s


def _tokens(sample: EngineSample) -> tuple[float | None, float | None]:
    """Counters that move with each request, also with one that came and went between two polls."""
    return sample.prompt_tokens, sample.generated_tokens
