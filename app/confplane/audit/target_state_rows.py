"""The rows of the states of entities and keys in Kafka clusters, from and to the types of the port."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

from confplane.services.ports.applying import (
    AlterApplied,
    AlterRefused,
    BaseValue,
    DriftCause,
    DriftRecord,
    RefusedValue,
    TargetState,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Row

    from confplane.services.ports.applying import Correction, DeliveryOutcome


_DRIFT_CAUSES: Final = frozenset(DriftCause)


def to_json(value: object) -> str:
    """Return rows, or objects with fields like columns, as a statement takes them."""
    return orjson.dumps(value).decode()


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def outcome_row(result: DeliveryOutcome) -> dict[str, Any]:
    """Return the row of an entity with the outcome of its delivery."""
    outcome: dict[str, Any]
    match result.outcome:
        case AlterApplied():
            outcome = {"outcome": "applied", "refused": list(result.drift)}
        case AlterRefused(code, said):
            outcome = {"outcome": "refused", "code": code, "said": said}
        case _:
            outcome = {"outcome": "not-sent"}
    sent = result.delivery
    return {"entity_id": sent.entity_id, "mzxid": sent.mzxid, "id": sent.id, "offset": result.offset, **outcome}


def drift_row(drift: DriftRecord) -> dict[str, Any]:
    """Return the columns of a key that is left alone."""
    refused = drift.refused
    row: dict[str, Any] = {"state": drift.cause, "theirs": drift.theirs, "since": _time(drift.since_ms / 1000)}
    if refused is None:
        return row
    return {
        **row,
        "refused_value": refused.value,
        "refused_code": refused.code,
        "refused_text": refused.text,
        "refused_absent": refused.absent,
    }


def key_rows(made: Correction) -> list[dict[str, Any]]:
    """Return the rows of the keys of a correction."""
    rows = []
    for key in {*made.put_back, *made.drift, *made.put_back_at}:
        at = [_time(each) for each in made.put_back_at.get(key, ())]
        row: dict[str, Any] = {"entity_id": made.entity_id, "key": key, "put_back_at": at}
        if key in made.put_back:
            base = made.put_back[key]
            row |= {"state": "resend", "base_value": base.value, "base_offset": base.offset}
        elif key in made.drift:
            row |= drift_row(made.drift[key])
        rows.append(row)
    return rows


def state_of(row: Row[Any]) -> TargetState:
    """Return the state of an entity with its keys and deliveries."""
    applied: dict[str, str | None] = {}
    taken_at: dict[str, int] = {}
    reapply, absent = set(), set()
    drift: dict[str, DriftRecord] = {}
    put_back_at: dict[str, list[float]] = {}
    base: dict[str, BaseValue] = {}
    uncertain, refused_later, newest = _arriving(row.arriving_rows) if row.arriving_rows else ({}, {}, {})
    for each in orjson.loads(row.key_rows) if row.key_rows else ():
        key, state = each["key"], each["state"]
        if each["taken"]:
            applied[key] = each.get("value")
            # A value that was sent later may have arrived since.
            if "offset" in each and (key not in newest or _instant(newest[key]) < _instant(each["delivered_at"])):
                taken_at[key] = each["offset"]
        elif each.get("refused_absent"):
            absent.add(key)
        if state == "resend":
            reapply.add(key)
        elif state in _DRIFT_CAUSES:
            drift[key] = _drift(each)
        if times := each.get("put_back_at"):
            put_back_at[key] = [_instant(at).timestamp() for at in times]
        if "base_offset" in each:
            base[key] = BaseValue(each.get("base_value"), each["base_offset"])
    return TargetState(
        row.sent_mzxid,
        row.applied_mzxid,
        row.applied_offset,
        applied,
        frozenset(orjson.loads(row.sent_keys) if row.sent_keys else ()),
        uncertain,
        None if row.refused_code is None else AlterRefused(row.refused_code, row.refused_text or ""),
        frozenset(reapply),
        drift,
        put_back_at,
        row.topic_id,
        base,
        taken_at,
        row.delivery_id is not None,
        refused_later,
        frozenset(absent),
    )


def _arriving(
    rows: str,
) -> tuple[dict[str, tuple[str | None, ...]], dict[str, frozenset[str | None]], dict[str, str]]:
    """Return what may still arrive: by key the values, those of them that were refused later, and the last time."""
    values: dict[str, list[str | None]] = {}
    refused: dict[str, dict[str | None, bool]] = {}
    newest: dict[str, str] = {}
    for each in orjson.loads(rows):
        key, value = each["key"], each["value"]
        values.setdefault(key, []).append(value)
        of_key = refused.setdefault(key, {})
        of_key[value] = of_key.get(value, True) and each["refused_later"]
        newest[key] = each["sent_at"]
    return (
        {key: tuple(dict.fromkeys(found)) for key, found in values.items()},
        {
            key: frozenset(value for value, later in found.items() if later)
            for key, found in refused.items()
            if any(found.values())
        },
        newest,
    )


def _drift(each: Mapping[str, Any]) -> DriftRecord:
    cause, since_ms = DriftCause(each["state"]), round(_instant(each["since"]).timestamp() * 1000)
    refused = None
    if cause is DriftCause.REFUSED:
        refused = RefusedValue(
            each.get("refused_value"),
            each["refused_code"],
            each.get("refused_text", ""),
            each.get("refused_absent", False),
        )
    return DriftRecord(cause, each.get("theirs"), since_ms, refused)


def _instant(given: str) -> datetime:
    return datetime.fromisoformat(given)
