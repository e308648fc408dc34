"""``confplane drift``: what differs in a Kafka cluster without ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import typer

from confplane.cli.remote.entities import entity_of
from confplane.cli.remote.output import ABSENT, HIDDEN, print_json, print_table, sides_of, value_text
from confplane.cli.remote.session import DONE, FAILED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confplane.client import AsyncConfplane

_UNSEEN: Final = "(not seen)"
"""Printed instead of a value of a cluster that did not answer."""


@dataclass(frozen=True, slots=True)
class DriftOptions:
    """The entities to adopt or to reapply, and the options of the request."""

    entities: tuple[str, ...]
    keys: tuple[str, ...]
    """The keys; empty for all that differ."""
    validate_only: bool
    reason: str | None = None
    ticket: str | None = None

    def request_arguments(self) -> dict[str, Any]:
        """Return the entities and the options as arguments of the client library.

        Raises:
            InvalidRequestError: No entity can have a name.
        """
        return {
            "entities": [entity_of(each) for each in self.entities],
            "keys": self.keys or None,
            "validate_only": self.validate_only,
            "reason": self.reason,
            "ticket": self.ticket,
        }


async def adopt(client: AsyncConfplane, options: DriftOptions, *, as_json: bool) -> int:
    """Adopt the cluster's values, print the differences, and return the exit code."""
    answer = await client.drift.adopt(**options.request_arguments())
    results = answer.body["results"]
    if as_json:
        print_json(answer.body)
    else:
        rows = [(each["id"], *sides_of(change)) for each in results for change in each["diff"]]
        if rows:
            print_table(("ENTITY", "KEY", "BEFORE", "AFTER"), rows)
        elif not answer.body["failed"]:
            typer.echo("Nothing differs", err=True)
        for each in results:
            if each["errorCode"]:
                typer.echo(f"{each['id']}: {each['errorMessage']} ({each['errorName']})", err=True)
    return FAILED if answer.body["failed"] else DONE


async def reapply(client: AsyncConfplane, options: DriftOptions, *, as_json: bool) -> int:
    """Send values again, print their keys, and return the exit code."""
    answer = await client.drift.reapply(**options.request_arguments())
    if as_json:
        print_json(answer.body)
        return DONE
    rows = [(each["id"], key) for each in answer.body["results"] for key in each["keys"]]
    if rows:
        print_table(("ENTITY", "KEY"), rows)
    else:
        typer.echo("Nothing of these entities was refused or is contested", err=True)
    return DONE


async def list_drift(client: AsyncConfplane, *, as_json: bool) -> int:
    """Print the entities that differ, by id, and return the exit code."""
    found = [item async for item in client.drift.list(page_size=1000)]
    if as_json:
        for item in found:
            print_json(item)
    elif found:
        print_table(
            ("ENTITY", "KEY", "STATE", "OURS", "THEIRS", "SINCE", "BY", "REASON"),
            [row for item in found for row in _rows(item)],
        )
    else:
        typer.echo(f"Nothing differs in the Kafka cluster of {client.cluster}", err=True)
    return DONE


def _rows(item: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for key in item["keys"]:
        theirs = _UNSEEN if item["observedAt"] is None else _value(key, "theirs")
        refused = item["refusedMessage"] or "" if key["state"] == "refused" else ""
        yield (
            item["id"],
            key["key"],
            key["state"],
            _value(key, "ours"),
            theirs,
            key["since"] or "",
            key["principal"] or "",
            refused,
        )


def _value(key: Mapping[str, Any], side: str) -> str:
    if key["secret"]:
        return HIDDEN
    return ABSENT if key[side] is None else value_text(key[side])
