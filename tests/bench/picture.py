"""The figures beside Kafka's as a picture: how many times better Confplane is, with the range of the rounds."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import altair as alt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.bench.rounds import Figure

_WIDTH = 460
_LINE = 24
_BETTER = "#2a6f97"
_WORSE = "#b5651d"
_GOAL = "#222222"


def draw(figures: Sequence[Figure], path: Path) -> None:
    """Write a PNG: a bar a figure, its range, its goal where it has one. The scale is logarithmic."""
    rows = [_row(figure) for figure in figures]
    base = alt.Chart(alt.InlineData(rows))
    line = alt.Y("name:N", sort=[figure.name for figure in figures], title=None, axis=alt.Axis(labelLimit=420))
    scale = alt.Scale(type="log")
    color = alt.condition("datum.ratio >= 1", alt.value(_BETTER), alt.value(_WORSE))
    bars = base.mark_bar(height=14).encode(
        y=line,
        x=alt.X("ratio:Q", scale=scale, title="times as good as Kafka (median; line: range of the rounds)"),
        x2=alt.datum(1),
        color=color,
    )
    ranges = base.mark_rule(strokeWidth=2, color="#666666").encode(y=line, x="least:Q", x2="most:Q")
    values = base.mark_text(align="left", dx=6).encode(y=line, x="label:Q", text="text:N")
    goals = (
        base.transform_filter("isValid(datum.goal)")
        .mark_tick(thickness=3, height=20, color=_GOAL)
        .encode(y=line, x="goal:Q")
    )
    chart = (bars + ranges + goals + values).properties(
        width=_WIDTH,
        height=alt.Step(_LINE),
        title=alt.Title(f"Confplane beside {figures[0].reference_name}", subtitle="black marks: goals", anchor="start"),
        padding=12,
    )
    chart.save(path, format="png", scale_factor=2)


def _row(figure: Figure) -> dict[str, str | float | None]:
    ratios = figure.ratios
    median = statistics.median(ratios)
    return {
        "name": figure.name,
        "ratio": median,
        "least": min(ratios),
        "most": max(ratios),
        "goal": float(figure.goal) if figure.goal[:1].isdigit() else None,
        "label": max(1.0, *ratios),
        "text": f"{median:.2f}",
    }
