"""Charts as pictures: bars with names, drawn here as SVG or PNG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import altair as alt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST: Final = 12
"""Maximum number of bars in one chart. The caption says how many are omitted."""
WIDTH: Final = 420
"""Width of a chart, in pixels: about that of a phone, on which texts keep their size."""
_TEXT_PX: Final = 14
_BAR: Final = 24
_NAME_PX: Final = 190
_LABEL_PX: Final = 180
"""Maximum width of a name: a browser without the font uses a wider one."""
_COLOURS: Final = ["#3b6ea5", "#e08a3c", "#6a9f58", "#b5545c", "#8a74b4", "#7c7c7c"]
_FONT: Final = "Helvetica, Arial, sans-serif"
_PNG_SCALE: Final = 3
"""Pixels of a PNG for each pixel of a chart, enough for slides."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart with its title and its caption."""

    title: str
    caption: str
    chart: alt.Chart

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to draw."""
        return not self.chart.data.values


def svg(picture: Picture) -> str:
    """Return a picture as SVG, drawn here: this needs neither a browser nor a network."""
    import vl_convert  # noqa: PLC0415 - slow to import, and only needed to draw

    drawn: str = vl_convert.vegalite_to_svg(_themed(picture.chart))
    return drawn


def png(picture: Picture) -> bytes:
    """Return a picture as PNG, with the same content as :func:`svg`."""
    import vl_convert  # noqa: PLC0415 - as above

    drawn: bytes = vl_convert.vegalite_to_png(_themed(picture.chart), scale=_PNG_SCALE)
    return drawn


def _themed(chart: alt.Chart) -> dict[str, Any]:
    quiet = {"labelFontSize": _TEXT_PX, "titleFontSize": _TEXT_PX, "titleFontWeight": "normal", "labelColor": "#333"}
    found: dict[str, Any] = (
        chart.configure(font=_FONT, background="white")
        .configure_view(stroke=None)
        .configure_axis(gridColor="#e8e8e8", domainColor="#999", tickColor="#999", **quiet)
        .configure_legend(orient="top", labelFontSize=_TEXT_PX)
        .to_dict()
    )
    return found


def chart(rows: list[dict[str, Any]]) -> alt.Chart:
    """Return a chart of rows without marks."""
    return alt.Chart(alt.InlineData(values=rows))


def bars(counts: Mapping[str, float], title: str, *, is_share: bool = False) -> alt.Chart:
    """Return a bar for each of the largest counts, the largest on top.

    Args:
        counts: Name -> count.
        title: The title of the axis of the counts.
        is_share: True if the counts are parts of a whole and shown in percent.
    """
    shown = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST]
    axis = alt.Axis(format=".0%") if is_share else alt.Axis(tickMinStep=1, format="~s")
    made: alt.Chart = (
        chart([{"name": name, "count": count} for name, count in shown])
        .mark_bar(color=_COLOURS[0])
        .encode(y=names("name", [name for name, _ in shown]), x=alt.X("count:Q", title=title, axis=axis))
        .properties(width=WIDTH - _NAME_PX, height=alt.Step(_BAR))
    )
    return made


def stacked(rows: list[dict[str, Any]], title: str, parts: Sequence[str]) -> alt.Chart:
    """Return a bar of coloured parts for each name.

    Args:
        rows: Rows with ``name``, ``part`` and ``count``; the bars are in the order of the names.
        title: The title of the axis of the counts.
        parts: The parts, in the order of a bar.
    """
    order = list(dict.fromkeys(row["name"] for row in rows))
    made: alt.Chart = (
        chart([{**row, "order": parts.index(row["part"])} for row in rows])
        .mark_bar()
        .encode(
            y=names("name", order),
            x=alt.X("count:Q", title=title, axis=alt.Axis(tickMinStep=1, format="~s")),
            color=colour("part", parts),
            order=alt.Order("order:Q"),
        )
        .properties(width=WIDTH - _NAME_PX, height=alt.Step(_BAR))
    )
    return made


def names(field: str, order: Sequence[str]) -> alt.Y:
    """Return an axis of names."""
    return alt.Y(f"{field}:N", sort=list(order), title=None, axis=alt.Axis(labelLimit=_LABEL_PX, minExtent=_NAME_PX))


def colour(field: str, order: Sequence[str]) -> alt.Color:
    """Return the colours of a field's values."""
    few = len(order) <= len(_COLOURS)
    scale = alt.Scale(domain=list(order), **({"range": _COLOURS[: len(order)]} if few else {"scheme": "tableau10"}))
    return alt.Color(f"{field}:N", scale=scale, title=None, legend=alt.Legend(columns=2, columnPadding=16))


def describe_count(what: str, counts: Mapping[str, float]) -> str:
    """Return the numbers of drawn bars and of all.

    Args:
        what: The things counted, in the plural.
        counts: Name -> count.
    """
    total = f"{what.capitalize()}: {len(counts):,}."
    return f"{total} Shown are the first {MOST}." if len(counts) > MOST else total
