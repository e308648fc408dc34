"""The reference of ``usage``: plain Python over the measurements, with the domain's own list of levels."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from confplane.domain.entities import Entity
from confplane.domain.resolution import quota_levels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Row = dict[str, Any]
KEYS = ("consumer_byte_rate", "controller_mutation_rate", "producer_byte_rate", "request_percentage")


def usage(measured: Iterable[Row], znodes: Iterable[Row], capacity: Mapping[str, float]) -> list[Row]:
    """The rows of the job."""
    stored = {
        row["entity_id"]: row["config"]
        for row in znodes
        if row["tree"] == "/config" and row["entity_id"] and not row["undecodable"] and not row["forbidden"]
    }
    largest: dict[tuple[str, Any, Any, Any], float] = defaultdict(float)
    for row in measured:
        if row["metric"] in KEYS:
            client = (row["user"] or "", row["client_id"] or "")
            place = (row["metric"], *client, row["time"])
            largest[place] = max(largest[place], row["value"])
    budgets: dict[tuple[str, str], Row] = {}
    for (key, user, client, time), value in largest.items():
        level, source, text, budget = _quota(key, user, client, stored)
        quota = None if text is None else _number(key, text)
        found = {"level": level, "source": source, "quota": quota, "used": defaultdict(Fraction), "clients": set()}
        for name, first in (
            (budget, found),
            (
                "",
                {
                    **found,
                    "level": None,
                    "source": None,
                    "quota": None,
                    "used": defaultdict(Fraction),
                    "clients": set(),
                },
            ),
        ):
            each = budgets.setdefault((key, name), first)
            each["used"][time] += Fraction(repr(value))
            each["clients"].add((user, client))
    promised: dict[str, Fraction] = defaultdict(Fraction)
    for (key, name), each in budgets.items():
        promised[key] += Fraction(repr(each["quota"] or 0)) if name else 0
    return [
        _row(key, name, {**each, "quota": each["quota"] if name else float(promised[key])}, capacity.get(key))
        for (key, name), each in budgets.items()
    ]


def _quota(key: str, user: str, client: str, stored: Mapping[str, Row]) -> tuple[Any, Any, Any, str]:
    """The level, the entry and the text that decide, and those who share it."""
    components = {name: value for name, value in (("user", user), ("client_id", client)) if value}
    entity = Entity.of(**components)
    for each in quota_levels(entity):
        if not user and each.entity_id.startswith("user"):
            continue
        text = stored.get(each.entity_id, {}).get(key)
        if text is not None:
            shared = entity
            if each.level in {3, 6}:
                shared = Entity.of(user=user)
            elif each.level in {7, 8} and client:
                shared = Entity.of(client_id=client)
            return each.level, each.entity_id, text, shared.id
    return None, None, None, entity.id


def _number(key: str, text: str) -> float | None:
    try:
        value = float(int(text)) if key.endswith("_byte_rate") else float(text)
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None


def _row(key: str, name: str, found: Row, capacity: float | None) -> Row:
    total, quota = sum(found["used"].values()), found["quota"]
    used = sorted(map(float, found["used"].values()))
    place = 0.95 * (len(used) - 1)
    low, rest = int(place), place - int(place)
    throttled = None
    if name and quota is not None:
        throttled = sum(value >= 0.95 * quota for value in used) / len(used)
    state = _state(name, found, used[-1], throttled)
    wanted = {"throttled": 1.5 * (quota or 0), "distant": 2 * used[-1], "unlimited": 2 * used[-1]}.get(state, 0.0)
    proposed = math.ceil(wanted) if key.endswith("_byte_rate") else math.ceil(wanted * 100) / 100
    return {
        "config_key": key, "budget": name, "state": state, "quota": quota, "level": found["level"],
        "source": found["source"], "clients": len(found["clients"]), "samples": len(used),
        "mean": float(total) / len(used), "p95": used[low] + rest * (used[min(low + 1, len(used) - 1)] - used[low]),
        "peak": used[-1], "throttled_share": throttled, "capacity": capacity,
        "share": quota / capacity if capacity and quota is not None else None,
        "proposed": proposed or None, "proposal": _body(key, name, proposed) if proposed else None,
        "default_proposal": _body(key, found["source"], proposed) if proposed and _is_default(state, found) else None,
    }  # fmt: skip


def _is_default(state: str, found: Row) -> bool:
    return state == "throttled" and any(name is None for _, name in Entity.from_id(found["source"]).components)


def _state(name: str, found: Row, peak: float, throttled: float | None) -> str:
    if not name:
        return "total"
    if found["level"] is None:
        return "unlimited"
    if throttled is None:
        return "unreadable"
    if throttled >= 0.01:
        return "throttled"
    return "distant" if peak <= found["quota"] / 2 else "within"


def _body(key: str, name: str, value: float) -> Any:
    entity = [{"entityType": kind.value, "entityName": part} for kind, part in Entity.from_id(name).components]
    return json.dumps({"entries": [{"entity": entity, "ops": [{"key": key, "value": value}]}]}, sort_keys=True)
