"""``confplane drift``: what differs in a Kafka cluster without ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from app.cli.remote.output import ABSENT, HIDDEN, print_json, print_table, value_text
from app.cli.remote.session import DONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from app.client import ConfplaneClient

_UNSEEN: Final = "(not seen)"
"""The place of a value in a cluster that did not answer."""


async def listed(client: ConfplaneClient, *, as_json: bool) -> int:
    """Print the entities that differ, by id, and return the exit code."""
    found = [item async for item in client.items("drift", pageSize="1000")]
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
