"""Charts of the rollups' rows: one pass over the rows of each, and pictures of the most important ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import altair as alt

from app.domain.rollups import ROLLUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MOST: Final = 12
"""Bars of one chart; the rest is summed up or left out, as the caption says."""
_WIDTH: Final = 620
_BAR: Final = 18
_NAME_PX: Final = 260
_COLOURS: Final = ["#3b6ea5", "#e08a3c", "#6a9f58", "#b5545c", "#8a74b4", "#7c7c7c"]
_FONT: Final = "Helvetica, Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart with its title and its caption."""

    title: str
    caption: str
    chart: alt.Chart


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a section's rows."""

    facts: tuple[str, ...]
    """Sentences with the totals."""
    pictures: tuple[Picture, ...]


def summary(name: str, rows: Iterable[Mapping[str, Any]]) -> Summary:
    """Return the summary of a rollup's rows, which are read once."""
    return _SUMMARIES[name](rows)


def _activity(rows: Iterable[Mapping[str, Any]]) -> Summary:
    days: Counter[tuple[str, str]] = Counter()
    actors: Counter[str] = Counter()
    keys: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for row in rows:
        for outcome in ("committed", "rejected", "open", "reverts"):
            total[outcome] += row[outcome]
            if outcome != "reverts" and row[outcome]:
                days[str(row["day"]), outcome] += row[outcome]
        actors[row["principal"]] += row["committed"]
        keys[row["config_key"] or "(none)"] += row["committed"]
    changed = (
        f"{total['committed']:,} keys were changed; {total['rejected']:,} changes of keys were refused, and"
        f" {total['open']:,} have no outcome yet."
    )
    facts = (changed, f"{total['reverts']:,} changes set a key back to what it was within a week before.")
    by_day = [{"day": day, "outcome": outcome, "changes": count} for (day, outcome), count in sorted(days.items())]
    over_time = (
        _chart(by_day)
        .mark_bar()
        .encode(
            x=alt.X("utcyearmonthdate(day):T", title=None, axis=alt.Axis(format="%d %b", labelOverlap=True)),
            y=alt.Y("sum(changes):Q", title="changed keys a day"),
            color=_colour("outcome", ["committed", "rejected", "open"]),
        )
        .properties(width=_WIDTH, height=200)
    )
    return Summary(
        facts,
        (
            Picture("Changes over time", "Changed keys on each UTC day, by how the change ended.", over_time),
            Picture("Principals with the most changes", _of("principals", actors), _bars(actors, "changed keys")),
            Picture("What is changed most", _of("keys", keys), _bars(keys, "changes")),
        ),
    )


def _compatibility(rows: Iterable[Mapping[str, Any]]) -> Summary:
    clients: set[str] = set()
    software: Counter[str] = Counter()
    supported: Counter[str] = Counter()
    count = 0
    for row in rows:
        count += 1
        clients.add(row["entity_id"])
        software[f"{row['software_name']} {row['software_version']}"] += 1
        supported.update(row["common_configs"])
        if not row["common_configs"]:
            supported["(none)"] += 1
    facts = (f"{len(clients):,} clients are registered, with {len(software):,} versions of software.",)
    return Summary(
        facts,
        (
            Picture("Software in use", _of("versions", software), _bars(software, "clients")),
            Picture("What clients take over", f"Of {count:,} registrations, how many support each config.",
                    _bars(supported, "registrations")),
        ),
    )  # fmt: skip


def _drift(rows: Iterable[Mapping[str, Any]]) -> Summary:
    deviating: Counter[tuple[str, str]] = Counter()
    keys: set[tuple[str, str]] = set()
    for row in rows:
        key = (row["entity_type"], row["config_key"])
        keys.add(key)
        if row["rank"] > 1:
            deviating[key] += row["entities"]
    facts = (f"Of {len(keys):,} configs that are set, {len(deviating):,} do not have the same value everywhere.",)
    named = Counter({f"{key} ({kind}s)": count for (kind, key), count in deviating.items()})
    caption = f"How many brokers or topics have another effective value than most. {_of('configs', named)}"
    return Summary(facts, (Picture("Who deviates", caption, _bars(named, "deviating")),))


def _impact(rows: Iterable[Mapping[str, Any]]) -> Summary:
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        found[f"{row['config_key']} of {row['default_id']}"] = (row["affected"], row["overridden"])
        if len(found) > 50 * MOST:
            found = _widest(found)
    shown = _widest(found)
    data = [
        {"default": default, "clients": count, "who": who}
        for default, counts in shown.items()
        for who, count in zip(("see the change", "have their own"), counts, strict=True)
    ]
    chart = (
        _chart(data)
        .mark_bar()
        .encode(
            y=_names("default", list(shown)),
            x=alt.X("clients:Q", title="clients or brokers", axis=alt.Axis(tickMinStep=1)),
            color=_colour("who", ["see the change", "have their own"]),
        )
        .properties(width=_WIDTH - _NAME_PX, height=alt.Step(_BAR))
    )
    caption = f"The {len(shown)} defaults whose change would be seen by most."
    return Summary((), (Picture("Reach of the defaults", caption, chart),))


def _widest(found: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    return dict(sorted(found.items(), key=lambda item: (-item[1][0], item[0]))[:MOST])


def _quotas(rows: Iterable[Mapping[str, Any]]) -> Summary:
    facts: list[str] = []
    levels: dict[str, Counter[str]] = defaultdict(Counter)
    shares: list[dict[str, Any]] = []
    for row in rows:
        if row["entity_id"]:
            levels[row["config_key"]]["unlimited" if row["level"] is None else f"level {row['level']}"] += 1
            continue
        facts.append(
            f"{row['config_key']}: {row['value']:,.0f} promised to {row['clients'] - row['unlimited']:,} of"
            f" {row['clients']:,} clients; {row['unlimited']:,} are unlimited."
        )
        if row["share"] is not None:
            shares.append({"quota": row["config_key"], "share": row["share"]})
    order = [*(f"level {level}" for level in range(1, 9)), "unlimited"]
    data = [
        {"quota": key, "level": level, "clients": count, "order": order.index(level)}
        for key, counts in sorted(levels.items())
        for level, count in counts.items()
    ]
    where = (
        _chart(data)
        .mark_bar()
        .encode(
            y=_names("quota", sorted(levels)),
            x=alt.X("clients:Q", title="clients", axis=alt.Axis(tickMinStep=1)),
            color=alt.Color("level:N", sort=order, title=None, scale=alt.Scale(scheme="tableau10")),
            order=alt.Order("order:Q"),
        )
        .properties(width=_WIDTH - _NAME_PX, height=alt.Step(2 * _BAR))
    )
    pictures = [Picture("Where quotas come from", "Registered clients by the level (KIP-55) that decides.", where)]
    if shares:
        promised = Counter({each["quota"]: round(100 * each["share"], 1) for each in shares})
        caption = (
            "All quotas together in percent of what one broker can bear; above 100 more is promised than there is."
        )
        pictures.append(Picture("Promised", caption, _bars(promised, "percent of the capacity")))
    return Summary(tuple(facts), tuple(pictures))


def _integrity(rows: Iterable[Mapping[str, Any]]) -> Summary:
    kinds: Counter[str] = Counter()
    pending = 0
    for row in rows:
        kinds[row["kind"]] += 1
        pending += row["pending"]
    if not kinds:
        return Summary(("The trail, folded up, is what ZooKeeper holds: there is no mismatch.",), ())
    total = f"{kinds.total():,} mismatches; {pending:,} may go away by themselves."
    meant = (f"{kind}: {text}." for kind, text in ROLLUPS["integrity"].kinds.items() if kind in kinds)
    return Summary((total, *meant), (Picture("Mismatches", "By kind.", _bars(kinds, "mismatches")),))


def _compare(rows: Iterable[Mapping[str, Any]]) -> Summary:
    kinds: Counter[str] = Counter()
    keys: Counter[str] = Counter()
    others: set[str] = set()
    same = 0
    for row in rows:
        kinds[row["kind"]] += 1
        keys[row["config_key"] or f"({row['kind']})"] += 1
        others.add(row["other"])
        same += bool(row["same_effective"])
    if not kinds:
        return Summary(("The two sides are equal.",), ())
    total = f"{kinds.total():,} differences from {', '.join(sorted(others))}; {same:,} of them are none in effect."
    return Summary(
        (total,),
        (
            Picture("Differences", "By kind.", _bars(kinds, "differences")),
            Picture("Keys that differ most", _of("keys", keys), _bars(keys, "differences")),
        ),
    )


def _usage(rows: Iterable[Mapping[str, Any]]) -> Summary:
    states: Counter[str] = Counter()
    throttled: Counter[str] = Counter()
    facts: list[str] = []
    for row in rows:
        if not row["budget"]:
            over = "" if row["share"] is None else f", {100 * row['share']:,.0f} % of the capacity"
            facts.append(
                f"{row['config_key']}: {row['quota']:,.0f} promised{over}; {row['peak']:,.0f} used at the peak."
            )
            continue
        states[row["state"]] += 1
        if row["state"] == "throttled":
            throttled[f"{row['config_key']} of {row['budget']}"] = round(100 * row["throttled_share"], 1)
    pictures = [Picture("Quotas and their use", "Budgets by how near their clients come.", _bars(states, "budgets"))]
    if throttled:
        caption = f"Percent of the time at the quota. {_of('throttled budgets', throttled)}"
        pictures.append(Picture("Throttled budgets", caption, _bars(throttled, "percent of the time")))
    return Summary(tuple(facts), tuple(pictures))


_SUMMARIES: Final[dict[str, Callable[[Iterable[Mapping[str, Any]]], Summary]]] = {
    "activity": _activity,
    "compare": _compare,
    "compatibility": _compatibility,
    "drift": _drift,
    "impact": _impact,
    "integrity": _integrity,
    "quotas": _quotas,
    "usage": _usage,
}


def svg(picture: Picture) -> str:
    """Return a picture as SVG, drawn here: this needs neither a browser nor a network."""
    import vl_convert  # noqa: PLC0415 - slow to import, and only needed to draw

    drawn: str = vl_convert.vegalite_to_svg(_themed(picture.chart))
    return drawn


def _themed(chart: alt.Chart) -> dict[str, Any]:
    quiet = {"labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal", "labelColor": "#333"}
    found: dict[str, Any] = (
        chart.configure(font=_FONT, background="white")
        .configure_view(stroke=None)
        .configure_axis(gridColor="#e8e8e8", domainColor="#999", tickColor="#999", **quiet)
        .configure_legend(orient="top", labelFontSize=11)
        .to_dict()
    )
    return found


def _chart(rows: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=rows))


def _bars(counts: Counter[str], title: str) -> alt.Chart:
    shown = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST]
    chart: alt.Chart = (
        _chart([{"name": name, "count": count} for name, count in shown])
        .mark_bar(color=_COLOURS[0])
        .encode(
            y=_names("name", [name for name, _ in shown]),
            x=alt.X("count:Q", title=title, axis=alt.Axis(tickMinStep=1)),
        )
        .properties(width=_WIDTH - _NAME_PX, height=alt.Step(_BAR))
    )
    return chart


def _names(field: str, order: list[str]) -> alt.Y:
    return alt.Y(f"{field}:N", sort=order, title=None, axis=alt.Axis(labelLimit=_NAME_PX, minExtent=_NAME_PX))


def _colour(field: str, order: list[str]) -> alt.Color:
    scale = alt.Scale(domain=order, range=_COLOURS[: len(order)])
    return alt.Color(f"{field}:N", scale=scale, title=None)


def _of(what: str, counts: Counter[str]) -> str:
    return f"The first {MOST} of {len(counts):,} {what}." if len(counts) > MOST else f"All {len(counts):,} {what}."
