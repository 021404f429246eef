"""How an answer is chosen and how long it may be, as a request says it."""

from dataclasses import dataclass, replace

from workbench.engine.speculation import REFUSED_FIELDS


@dataclass(frozen=True, slots=True)
class Sampling:
    """What the user chose; None leaves a value to the server. With `ignore_eos` vLLM writes all of `max_tokens`."""

    max_tokens: int | None = 512
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    min_p: float | None = None
    ignore_eos: bool | None = None

    def allowed(self, speculates: bool) -> "Sampling":
        """Without the fields that an engine refuses while it speculates: it would answer with 400."""
        fields = [name for name in self.__slots__ if name in REFUSED_FIELDS]
        return replace(self, **dict.fromkeys(fields)) if speculates else self

    def plain(self) -> "Sampling":
        """With the fields of OpenAI's interface alone."""
        return Sampling(self.max_tokens, self.temperature, self.top_p, seed=self.seed)

    def chosen(self) -> dict[str, float | int]:
        """The values that go into the request."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
