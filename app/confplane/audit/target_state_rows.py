"""The rows of the states of entities and keys in Kafka clusters, from and to the types of the port."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

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
    keys: dict[str, dict[str, Any]] = {each["key"]: each for each in row.key_rows}
    uncertain: dict[str, list[str | None]] = {}
    refused: dict[str, dict[str | None, bool]] = {}
    newest: dict[str, str] = {}
    for each in row.arriving_rows:
        uncertain.setdefault(each["key"], []).append(each["value"])
        values = refused.setdefault(each["key"], {})
        values[each["value"]] = values.get(each["value"], True) and each["refused_later"]
        newest[each["key"]] = each["sent_at"]
    applied = {key: each["value"] for key, each in keys.items() if each["taken"]}
    taken_at = {
        key: offset
        for key in applied
        if (offset := keys[key]["offset"]) is not None
        # A value that was sent later may have arrived since.
        and (key not in newest or _instant(newest[key]) < _instant(keys[key]["delivered_at"]))
    }
    return TargetState(
        row.sent_mzxid,
        row.applied_mzxid,
        row.applied_offset,
        applied,
        frozenset(row.sent_keys),
        {key: tuple(dict.fromkeys(values)) for key, values in uncertain.items()},
        None if row.refused_code is None else AlterRefused(row.refused_code, row.refused_text or ""),
        frozenset(key for key, each in keys.items() if each["state"] == "resend"),
        {key: _drift(each) for key, each in keys.items() if each["state"] in set(DriftCause)},
        {
            key: [_instant(at).timestamp() for at in each["put_back_at"]]
            for key, each in keys.items()
            if each["put_back_at"]
        },
        row.topic_id,
        {
            key: BaseValue(each["base_value"], each["base_offset"])
            for key, each in keys.items()
            if each["base_offset"] is not None
        },
        taken_at,
        row.delivery_id is not None,
        {
            key: frozenset(value for value, later in values.items() if later)
            for key, values in refused.items()
            if any(values.values())
        },
        frozenset(key for key, each in keys.items() if each["refused_absent"] and not each["taken"]),
    )


def _drift(each: Mapping[str, Any]) -> DriftRecord:
    cause, since_ms = DriftCause(each["state"]), round(_instant(each["since"]).timestamp() * 1000)
    refused = None
    if cause is DriftCause.REFUSED:
        refused = RefusedValue(
            each["refused_value"], each["refused_code"], each["refused_text"] or "", bool(each["refused_absent"])
        )
    return DriftRecord(cause, each["theirs"], since_ms, refused)


def _instant(given: str) -> datetime:
    return datetime.fromisoformat(given)
