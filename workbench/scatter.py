"""A picture of points as SVG: size to the right, harm upwards on a logarithmic scale."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 84, 150, 16, 52


@dataclass(frozen=True, slots=True)
class Point:
    """`y` is above 0. A point that is `crossed` is drawn as a failure."""

    name: str
    x: float
    y: float
    crossed: bool = False


def svg(points: Sequence[Point], x_label: str, y_label: str) -> str:
    """One SVG element; an empty string without points. The line joins those that nothing beats in both ways."""
    if not points:
        return ""
    xs, ys = [point.x for point in points], [math.log10(point.y) for point in points]
    x_low, x_high = _widened(min(xs), max(xs), 0.05 * max(xs))
    y_low, y_high = _widened(min(ys), max(ys), 0.15)

    def at(point: Point) -> tuple[float, float]:
        right = (point.x - x_low) / (x_high - x_low)
        up = (math.log10(point.y) - y_low) / (y_high - y_low)
        return LEFT + right * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(y_label)} / {escape(x_label)}">',
        f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>',
    ]
    for value in even(x_low, x_high):
        x, _ = at(Point("", value, points[0].y))
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:,.10g}</text>')
    for value in decades(y_low, y_high):
        _, y = at(Point("", xs[0], value))
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, frontier(points)))
    parts.append(f'<polyline class="best" points="{line}"/>')
    for point in points:
        x, y = at(point)
        kind = "failed" if point.crossed else "point"
        parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>')
        parts.append(f'<text class="name" x="{x + 10:.1f}" y="{y + 4:.1f}">{escape(point.name)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(
        f'<text transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text></svg>"
    )
    return "\n".join(parts)


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points to which no other is at once as small and as good, by size."""
    best: list[Point] = []
    for point in sorted((point for point in points if not point.crossed), key=lambda point: (point.x, point.y)):
        if not best or point.y < best[-1].y:
            best.append(point)
    return best


def _widened(low: float, high: float, least: float) -> tuple[float, float]:
    margin = max(0.08 * (high - low), least)
    return low - margin, high + margin


def even(low: float, high: float) -> list[float]:
    """Three to seven multiples of 1, 2 or 5 times a power of ten, where they lie between."""
    least = (high - low) / 6
    power = 10.0 ** math.floor(math.log10(least))
    step = power * next(digit for digit in (1, 2, 5, 10) if digit * power >= least)
    return [step * count for count in range(math.ceil(low / step), math.floor(high / step) + 1)]


def decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten, where they lie between."""
    values = [digit * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for digit in (1, 2, 5)]
    return [value for value in values if low <= math.log10(value) <= high]
