"""Apply results of changes in a Kafka 4 cluster, for commands that wait for them (``--wait-applied``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from confplane.cli.remote.session import DONE, FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def report_one(result: Mapping[str, Any]) -> int:
    """Print the apply result of one change, and return the exit code."""
    applied = result.get("applied")
    if applied is not None:
        typer.echo(_sentence(applied), err=True)
    return _code(applied)


def report_many(results: Iterable[tuple[str, Mapping[str, Any]]]) -> int:
    """Print which changes are not applied, and how many are; return the exit code.

    Args:
        results: Ids of entities, each with its result.
    """
    waited = [(entity_id, result["applied"]) for entity_id, result in results if result.get("applied") is not None]
    left = [(entity_id, applied) for entity_id, applied in waited if _code(applied) != DONE]
    for entity_id, applied in left:
        typer.echo(f"{entity_id}: {_sentence(applied)}", err=True)
    if waited:
        typer.echo(f"The Kafka cluster has taken {len(waited) - len(left)} of {len(waited)} changes", err=True)
    return FAILED if left else DONE


def _code(applied: Mapping[str, Any] | None) -> int:
    return DONE if applied is None or applied["state"] == "applied" else FAILED


def _sentence(applied: Mapping[str, Any]) -> str:
    match applied:
        case {"state": "applied"}:
            return "The Kafka cluster has taken the change"
        case {"state": "refused", "code": code, "message": message}:
            return f"The Kafka cluster refuses the change, which stays committed: {message} (code {code})"
    return "The Kafka cluster has not taken the change yet; it stays committed, and is sent later"
