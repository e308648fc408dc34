"""``confplane schedules``: temporary changes and their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.output import echo, is_json, print_items, print_json
from confplane.cli.remote.entities import entity_of
from confplane.cli.remote.options import (
    READ_CODES,
    WRITE_CODES,
    AsJson,
    AsLines,
    ClusterName,
    OptionalEntity,
    ProfileName,
    Reason,
    Ticket,
    terms,
)
from confplane.cli.remote.session import DONE, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from confplane.client import AsyncConfplane


commands = CommandGroup()
schedules = commands.subgroup("schedules")


@schedules.command("list", epilog=f"Example:\n\n    confplane schedules list topic=orders\n\n{READ_CODES}")
def list_schedules(
    entity: OptionalEntity = None,
    *,
    ended: Annotated[bool, typer.Option("--ended", help="Those that have ended.")] = False,
    as_json: AsLines = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """List temporary changes, newest first, each with the time of its end."""
    raise run(profile, cluster, lambda client: _list(client, entity, ended=ended))


@schedules.command(
    epilog=f"Example:\n\n    confplane schedules end 0195f3a0-6c1e-7d3a-9b7e-2f6c1d0a4b5c\n\n{WRITE_CODES}"
)
def end(
    change: Annotated[str, typer.Argument(metavar="CHANGE", help="The id of the change.")],
    *,
    reason: Reason = None,
    ticket: Ticket = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """End a temporary change now: its keys get their earlier values, unless they were changed otherwise since."""
    raise run(profile, cluster, lambda client: _end(client, change, terms(reason, ticket)))


@schedules.command(epilog=f"Example:\n\n    confplane schedules pause 'an incident is analyzed'\n\n{WRITE_CODES}")
def pause(
    why: Annotated[str, typer.Argument(metavar="REASON", help="The reason, which the list shows.")],
    *,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Pause all ends in the cluster. `confplane schedules end` still works."""
    raise run(profile, cluster, lambda client: _pause(client, why))


@schedules.command(epilog=f"Example:\n\n    confplane schedules resume --cluster payments\n\n{WRITE_CODES}")
def resume(*, as_json: AsJson = False, cluster: ClusterName = None, profile: ProfileName = None) -> None:
    """Resume the ends in the cluster. Those that are due follow within seconds."""
    raise run(profile, cluster, _resume)


async def _list(client: AsyncConfplane, name: str | None, *, ended: bool) -> int:
    listed = client.schedules.list(ended=ended, entity=None if name is None else entity_of(name))
    pauses: dict[str, None] = {}

    async def items() -> AsyncIterator[Mapping[str, Any]]:
        async for page in listed.pages():
            if page["pause"] is not None:
                pauses[_paused(page["pause"])] = None
            for item in page["items"]:
                yield item

    await print_items(
        items(),
        ("CHANGE", "ENTITIES", "ENDS", "STATE", "PRINCIPAL", "REASON", "NOTE"),
        _row,
        noun="temporary changes",
        empty=f"There are no such temporary changes in the cluster {client.cluster}",
        pages=False,
    )
    for pause in pauses:
        echo(f"Warning: {pause}. `confplane schedules resume` continues", err=True)
    return DONE


def _row(item: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    yield (
        item["changeId"],
        " ".join(item["entities"]),
        item["endedAt"] or item["revertAt"],
        *(item["state"], item["principal"], item["reason"] or ""),
        item["error"] or _kept(item),
    )


def _kept(item: Mapping[str, Any]) -> str:
    kept = ", ".join(f"{each['key']} of {each['entity']}" for each in item["kept"])
    return f"kept, because changed otherwise since: {kept}" if kept else ""


async def _end(client: AsyncConfplane, change: str, given: Mapping[str, Any]) -> int:
    item: Any = (await client.schedules.end(change, **given)).body
    if is_json():
        print_json(item)
        return DONE
    echo(f"The temporary change {change} has ended", err=True)
    if kept := _kept(item):
        echo(f"Warning: {kept}", err=True)
    return DONE


async def _pause(client: AsyncConfplane, reason: str) -> int:
    found: Any = (await client.schedules.pause(reason)).body
    if is_json():
        print_json(found)
    else:
        echo(_paused(found["pause"]), err=True)
    return DONE


def _paused(pause: Mapping[str, Any]) -> str:
    return f"Paused by {pause['principal']} since {pause['since']}: {pause['reason']}"


async def _resume(client: AsyncConfplane) -> int:
    found = (await client.schedules.resume()).body
    if is_json():
        print_json(found)
    else:
        echo("Temporary changes end at their times", err=True)
    return DONE
