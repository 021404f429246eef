"""Server-sent events out of raw bytes, wherever the network cut them."""


class EventStream:
    """Feed bytes, get the data of each complete event.

    Lines are split as bytes and decoded whole: no byte of a UTF-8 sequence looks like a line end, so a cut inside a
    character does no harm. CR, LF and CRLF all end a line (WHATWG, server-sent events).
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[str] = []
        self._after_cr = False

    def feed(self, raw: bytes) -> list[str]:
        """The data of the events that `raw` completed, in order."""
        if not raw:
            return []
        if self._after_cr and raw.startswith(b"\n"):
            raw = raw[1:]
        self._after_cr = raw.endswith(b"\r")
        events = []
        pieces = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for ended, piece in enumerate(pieces, start=1):
            self._line += piece
            if ended < len(pieces):
                events += self._end_line()
        return events

    def _end_line(self) -> list[str]:
        line = self._line.decode("utf-8", errors="replace")
        self._line.clear()
        if not line:
            data, self._data = self._data, []
            return ["\n".join(data)] if data else []
        name, _, value = line.partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
        return []
