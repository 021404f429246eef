"""The layers of a run as SVG: blocks downwards, modules across, each coloured by its output error."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from workbench import figures

LEFT, TOP, WIDE, HIGH, GAP = 44, 22, 62, 20, 2
MOST_COLUMNS = 20  # with an expert in each column no cell could be read
DARKEST = 0.5  # of the fill: the figure upon it stays readable in both schemes


def svg(modules: Sequence[Mapping[str, Any]]) -> str:
    """One SVG element from entries with name, block and sqnr_db; an empty string where there is nothing to compare."""
    cells = {(row["block"], _column(row)): row["sqnr_db"] for row in modules if row["sqnr_db"] is not None}
    columns, blocks = list(dict.fromkeys(column for _, column in cells)), sorted({block for block, _ in cells})
    if not 1 < len(columns) <= MOST_COLUMNS:
        return ""
    worst, best = min(cells.values()), max(cells.values())
    width, height = LEFT + WIDE * len(columns), TOP + HIGH * len(blocks)
    parts = [f'<svg class="layers" viewBox="0 0 {width} {height}" style="max-width:{width}px" role="img">']
    for at, column in enumerate(columns):
        head = escape(column.rpartition(".")[2].removesuffix("_proj"))
        parts.append(f'<text x="{LEFT + WIDE * (at + 0.5):g}" y="{TOP - 8}" text-anchor="middle">{head}</text>')
    for row, block in enumerate(blocks):
        y = TOP + HIGH * row
        parts.append(f'<text x="{LEFT - 10}" y="{y + 14}" text-anchor="end">{block}</text>')
        for at, column in enumerate(columns):
            if (sqnr_db := cells.get((block, column))) is not None:
                share = DARKEST * (best - sqnr_db) / (best - worst) if best > worst else 0
                parts.append(_cell(LEFT + WIDE * at, y, share, f"{block} · {column}", figures.number(sqnr_db)))
    return "\n".join((*parts, "</svg>"))


def _cell(x: int, y: int, share: float, name: str, figure: str) -> str:
    size = f'x="{x}" y="{y}" width="{WIDE - GAP}" height="{HIGH - GAP}" rx="3"'
    return (
        f'<g><title>{escape(name)}</title><rect class="cell" {size} fill-opacity="{share:.2f}"/>'
        f'<text class="figure" x="{x + (WIDE - GAP) / 2:g}" y="{y + 13.5:g}" text-anchor="middle">{figure}</text></g>'
    )


def _column(row: Mapping[str, Any]) -> str:
    """The layer's name within its block."""
    return row["name"].rpartition(f".{row['block']}.")[2]
