"""Summaries of the rollups' rows: one pass over the rows of each, for sentences with the totals, and charts."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import altair as alt

from confplane.domain.rollups import ROLLUPS
from confplane.rollups.cells import LEVELS, amount, error_name, percent
from confplane.rollups.charts import MOST, WIDTH, Picture, bars, chart, colour, describe_count, stacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_OUTCOMES: Final = {"committed": "committed_keys", "rejected": "rejected_keys", "open": "open_keys"}
"""Outcome -> the column of `activity` that counts it."""
_AXIS_PX: Final = 70
"""Width of an axis of numbers."""
_UNLIMITED: Final = "unlimited"
_UNREADABLE: Final = "not a number"
_REACH: Final = ("see the change", "have their own")
_DEFAULTS: Final = 5
"""Maximum number of defaults that throttle budgets in the sentences of `usage`."""
_BROKERS: Final = "configs"
"""The facet of the defaults that apply to brokers; the defaults of all other facets apply to clients."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a section's rows."""

    facts: tuple[str, ...]
    """Sentences with the totals."""
    pictures: tuple[Picture, ...]


def summary(name: str, rows: Iterable[Mapping[str, Any]]) -> Summary:
    """Return the summary of a rollup's rows, which are read once. It has no empty charts."""
    found = _SUMMARIES[name](rows)
    scope = ROLLUPS[name].scope
    facts = (f"{scope}.", *found.facts) if scope else found.facts
    return Summary(facts, tuple(picture for picture in found.pictures if not picture.is_empty))


def _activity(rows: Iterable[Mapping[str, Any]]) -> Summary:
    days: Counter[tuple[str, str]] = Counter()
    counted: dict[str, Counter[str]] = {of_what: Counter() for of_what in ("principal", "config_key", "team")}
    refusals: Counter[str] = Counter()
    total: Counter[str] = Counter()
    reverting = 0
    for row in rows:
        for outcome, column in _OUTCOMES.items():
            total[outcome] += row[column]
            if row[column]:
                days[str(row["day"]), outcome] += row[column]
        reverting += row["reverted_keys"]
        for of_what, counts in counted.items():
            if row[of_what] is not None:
                counts[row[of_what] or "(none)"] += row["committed_keys"]
        if row["rejected_keys"] and row["error_code"] is not None:
            refusals[error_name(row["error_code"])] += row["rejected_keys"]
    changed = (
        f"Changed keys: {total['committed']:,}; refused: {total['rejected']:,}; without an outcome yet:"
        f" {total['open']:,}. Each key of each entity of a change counts."
    )
    facts = (changed, f"Keys that were set back to what they were within a week before: {reverting:,}.")
    principals, keys, teams = (counted[of_what] for of_what in ("principal", "config_key", "team"))
    pictures = [
        Picture("Changed keys over time", "Keys on each UTC day, by how their change ended.", _over_time(days)),
        Picture(
            "Principals that changed most", describe_count("principals", principals), bars(principals, "changed keys")
        ),
        Picture("Keys that were changed most", describe_count("keys", keys), bars(keys, "times")),
    ]
    if teams:
        pictures.insert(1, Picture("Teams", describe_count("teams", teams), bars(teams, "changed keys")))
    if refusals:
        pictures.append(Picture("Refused keys", "By Kafka's error.", bars(refusals, "keys")))
    return Summary(facts, tuple(pictures))


def _over_time(days: Mapping[tuple[str, str], int]) -> alt.Chart:
    rows = [{"day": day, "outcome": outcome, "changes": count} for (day, outcome), count in sorted(days.items())]
    made: alt.Chart = (
        chart(rows)
        .mark_bar()
        .encode(
            x=alt.X("utcyearmonthdate(day):T", title=None, axis=alt.Axis(format="%d %b", labelOverlap=True)),
            y=alt.Y("sum(changes):Q", title="keys a day"),
            color=colour("outcome", list(_OUTCOMES)),
        )
        .properties(width=WIDTH - _AXIS_PX, height=200)
    )
    return made


def _compatibility(rows: Iterable[Mapping[str, Any]]) -> Summary:
    clients: set[str] = set()
    software: Counter[str] = Counter()
    supported: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    count = reporting = 0
    for row in rows:
        count += 1
        reporting += row["instances"]
        refused.update(row["refused_configs"])
        clients.add(row["entity_id"])
        software[f"{row['software_name']} {row['software_version']}"] += 1
        supported.update(row["common_configs"])
        if not row["common_configs"]:
            supported["(none)"] += 1
    facts = (
        f"Registered clients: {len(clients):,}; versions of their software: {len(software):,}.",
        f"Running clients that report what they have taken over: {reporting:,}.",
    )
    pictures = [
        Picture("Software in use", describe_count("versions", software), bars(software, "clients")),
        Picture("What clients take over", f"Of {count:,} registrations, how many support each config.",
                bars(supported, "registrations")),
    ]  # fmt: skip
    if refused:
        caption = f"Registrations some of whose running clients refuse the config. {describe_count('configs', refused)}"
        pictures.append(Picture("What running clients refuse", caption, bars(refused, "registrations")))
    return Summary(facts, tuple(pictures))


def _drift(rows: Iterable[Mapping[str, Any]]) -> Summary:
    deviating: dict[str, Counter[str]] = defaultdict(Counter)
    keys: set[tuple[str, str]] = set()
    listed: set[Any] = set()
    for row in rows:
        keys.add((row["entity_type"], row["config_key"]))
        if row["topics_as_of"] is not None:
            listed.add(row["topics_as_of"])
        if row["rank"] > 1:
            deviating[row["entity_type"]][row["config_key"]] += row["entities"]
    count = sum(len(counts) for counts in deviating.values())
    facts = [f"Configs that are set: {len(keys):,}; without the same value everywhere: {count:,}."]
    facts += [f"Topics are those of {time}: the list of all topics was more than an hour old." for time in listed]
    pictures = [
        Picture(
            f"{kind.capitalize()}s that deviate",
            f"Number of {kind}s that have another effective value than most. {describe_count('configs', counts)}",
            bars(counts, f"{kind}s"),
        )
        for kind, counts in sorted(deviating.items())
    ]
    return Summary(tuple(facts), tuple(pictures))


def _impact(rows: Iterable[Mapping[str, Any]]) -> Summary:
    found: dict[str, dict[str, tuple[int, int]]] = {"clients": {}, "brokers": {}}
    for row in rows:
        whom = "brokers" if row["facet"] == _BROKERS else "clients"
        found[whom][f"{row['config_key']} of {row['default_id']}"] = (row["affected"], row["overridden"])
        if len(found[whom]) > 50 * MOST:
            found[whom] = _widest(found[whom])
    pictures = []
    for whom, defaults in found.items():
        shown = _widest(defaults)
        data = [
            {"name": default, "part": part, "count": count}
            for default, counts in shown.items()
            for part, count in zip(_REACH, counts, strict=True)
        ]
        if data:
            caption = f"Defaults by the number of {whom} that would see a change; {MOST} at most."
            pictures.append(Picture(f"Reach of the defaults of {whom}", caption, stacked(data, whom, _REACH)))
    return Summary((), tuple(pictures))


def _widest(found: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    return dict(sorted(found.items(), key=lambda item: (-item[1][0], item[0]))[:MOST])


def _quotas(rows: Iterable[Mapping[str, Any]]) -> Summary:
    facts: list[str] = []
    levels: dict[str, Counter[str]] = defaultdict(Counter)
    promised: dict[str, float] = {}
    for row in rows:
        key = row["config_key"]
        if row["entity_id"]:
            levels[key][_level(row)] += 1
            continue
        share = "" if row["share"] is None else f" ({percent(row['share'])} of a broker's {_of_capacity(row)})"
        limited = row["clients"] - row["unlimited"] - row["unreadable"]
        unreadable = f"; {row['unreadable']:,} with a stored quota that is not a number" if row["unreadable"] else ""
        facts.append(
            f"{key}: {amount(key, row['value'] or 0)} promised{share} to {limited:,} of {row['clients']:,} registered"
            f" clients; {row['unlimited']:,} unlimited{unreadable}."
        )
        if row["share"] is not None:
            promised[key] = row["share"]
    if not facts:
        return Summary(("No client is registered.",), ())
    order = [*LEVELS.values(), _UNREADABLE, _UNLIMITED]
    used = [level for level in order if any(level in counts for counts in levels.values())]
    data = [
        {"name": key, "part": level, "count": counts[level]}
        for key, counts in sorted(levels.items())
        for level in used
        if counts[level]
    ]
    caption = "Registered clients by the entry that decides (the levels of KIP-55)."
    pictures = [Picture("Where quotas come from", caption, stacked(data, "clients", used))]
    if promised:
        caption = "All quotas together beside what one broker can bear; above 100 % more is promised than there is."
        pictures.append(Picture("Promised", caption, bars(promised, "of the capacity", is_share=True)))
    return Summary(tuple(facts), tuple(pictures))


def _level(row: Mapping[str, Any]) -> str:
    if row["level"] is None:
        return _UNLIMITED
    return _UNREADABLE if row["unreadable"] else LEVELS[row["level"]]


def _of_capacity(row: Mapping[str, Any]) -> str:
    return amount(row["config_key"], row["capacity"])


def _integrity(rows: Iterable[Mapping[str, Any]]) -> Summary:
    kinds: Counter[str] = Counter()
    pending = 0
    for row in rows:
        kinds[row["kind"]] += 1
        pending += row["pending"]
    if not kinds:
        return Summary(("The trail, folded up, is what ZooKeeper holds: there is no mismatch.",), ())
    total = f"Mismatches: {kinds.total():,}; pending, which may go away by themselves: {pending:,}."
    meant = (f"{kind}: {text}." for kind, text in ROLLUPS["integrity"].kinds.items() if kind in kinds)
    return Summary((total, *meant), (Picture("Mismatches", "By kind.", bars(kinds, "mismatches")),))


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
    total = f"Differences from {', '.join(sorted(others))}: {kinds.total():,}; without an effect: {same:,}."
    return Summary(
        (total,),
        (
            Picture("Differences", "By kind.", bars(kinds, "differences")),
            Picture("Keys that differ most", describe_count("keys", keys), bars(keys, "differences")),
        ),
    )


def _usage(rows: Iterable[Mapping[str, Any]]) -> Summary:
    states: Counter[str] = Counter()
    throttled: dict[str, float] = {}
    by_default: Counter[str] = Counter()
    facts: list[str] = []
    for row in rows:
        key = row["config_key"]
        if not row["budget"]:
            over = "" if row["share"] is None else f", {percent(row['share'])} of a broker's {_of_capacity(row)}"
            facts.append(
                f"{key}: {amount(key, row['quota'] or 0)} promised{over}; {amount(key, row['peak'])} used at the peak."
            )
            continue
        states[row["state"]] += 1
        if row["state"] == "throttled":
            throttled[f"{key} of {row['budget']}"] = row["throttled_share"]
            if row["default_proposal"] is not None:
                by_default[f"{key} of {row['source']}"] += 1
    facts += [
        f"Budgets that the default {default} throttles: {count:,}. Raise the default, or set an entry for each budget:"
        " the rows propose both."
        for default, count in by_default.most_common(_DEFAULTS)
    ]
    pictures = [Picture("Quotas and their use", "Budgets by how near their clients come.", bars(states, "budgets"))]
    if throttled:
        caption = f"Part of the time at the quota. {describe_count('throttled budgets', throttled)}"
        pictures.append(Picture("Throttled budgets", caption, bars(throttled, "of the time", is_share=True)))
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
