"""Numbers as people read them: text and unit apart, a dash for what is not known."""

import math
from numbers import Real

DASH = "–"


def number(value: Real | None, digits: int = 3) -> str:
    """About `digits` significant digits: 0.41, 0.012, 62, 1,234; tiny values as 1.9e-4."""
    if value is None or value != value:
        return DASH
    size = abs(value)
    if size and size < 1e-3:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    if size >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    if size and size < 0.1:
        return f"{value:.{1 - math.floor(math.log10(size))}f}"
    whole = len(str(int(size))) if size >= 1 else 1
    return f"{value:.{max(0, digits - whole)}f}"


def seconds(value: float | None) -> str:
    """0.41 · 12.3 · 64, without the unit."""
    return number(value)


def brief(value: float | None) -> str:
    """A short duration with its unit: "1.75 s", "35 ms", "< 1 ms"."""
    if value is None:
        return DASH
    if value >= 0.9995:
        return f"{number(value)} s"
    return f"{value * 1000:.0f} ms" if value >= 0.001 else "< 1 ms"


def percent(share: float | None, digits: int = 0) -> str:
    """A share of 1 as "63 %"."""
    if share is None:
        return DASH
    if 0 < share * 100 < 0.5 * 10**-digits:
        return f"{share * 100:.1g} %"
    return f"{share * 100:.{digits}f} %"


def bytes_of(value: float | None) -> str:
    """Decimal units, as vendors sell memory: "1.2 GB"."""
    return " ".join(bytes_apart(value)).strip()


def bytes_apart(value: float | None) -> tuple[str, str]:
    """("1.2", "GB"); (dash, "") for None."""
    if value is None:
        return DASH, ""
    units = ["B", "kB", "MB", "GB", "TB"]
    while abs(value) >= 999.5 and len(units) > 1:
        value /= 1000
        del units[0]
    return (f"{value:.0f}" if units[0] == "B" or abs(value) >= 99.95 else f"{value:.1f}"), units[0]


def count(value: float | None) -> str:
    """How many, short: 512 · 49,152 · 135 M · 7.6 B."""
    return " ".join(count_apart(value)).strip()


def count_apart(value: float | None) -> tuple[str, str]:
    """("135", "M"); (dash, "") for None."""
    if value is None:
        return DASH, ""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if abs(value) >= size * 0.9995:
            return number(value / size), unit
    return f"{value:,.0f}", ""


def tokens(value: float | None) -> str:
    """A number of tokens in full: 46,603."""
    return DASH if value is None else f"{value:,.0f}"


def ratio(value: float | None) -> str:
    """1.72×"""
    return DASH if value is None else f"{value:.2f}×"


def decibel(value: float | None) -> str:
    """27.3 dB"""
    return DASH if value is None else f"{value:.1f} dB"


def sqnr_db(output_error: float | None) -> float | None:
    """A relative squared error as signal to quantization noise; None where there is no noise to compare with."""
    return -10 * math.log10(output_error) if output_error else None


def clock(value: float | None) -> str:
    """A duration as 00:41 or 1:02:05."""
    if value is None:
        return DASH
    minutes, left = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes:02}:{left:02}"


def of_bytes(used: float | None, total: float | None) -> str:
    """ "91 / 139 GB": both in the larger one's unit."""
    if total is None:
        return bytes_of(used)
    whole, unit = bytes_apart(total)
    if used is None:
        return f"{DASH} / {whole} {unit}"
    part = used / 1000 ** ("B", "kB", "MB", "GB", "TB").index(unit)
    return f"{part:.0f} / {whole} {unit}" if part >= 99.95 else f"{part:.1f} / {whole} {unit}"


def more_than(needed: int, available: int) -> str:
    """ "15.2 > 11.6": two sizes in the larger one's unit, which is left out."""
    unit = bytes_apart(max(needed, available))[1]
    scale = 1000 ** ("B", "kB", "MB", "GB", "TB").index(unit)
    return f"{needed / scale:.1f} > {available / scale:.1f}"


def watts(used: float | None, limit: float | None = None) -> str:
    """ "540 / 700 W", "540 W" where no limit is known."""
    if used is None:
        return DASH
    return f"{used:.0f} W" if limit is None else f"{used:.0f} / {limit:.0f} W"
