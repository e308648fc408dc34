"""``confplane schedules``: temporary changes and their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.output import echo, is_json, print_items, print_result
from confplane.cli.remote.entities import entity_of
from confplane.cli.remote.options import READ_CODES, WRITE_CODES, OptionalEntity, Reason, Ticket, served, terms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from confplane.client import AsyncConfplane


commands = CommandGroup()
schedules = commands.subgroup("schedules")


@schedules.command("list", epilog=f"Example:\n\n    confplane schedules list topic=orders\n\n{READ_CODES}")
@served(as_lines=True)
async def list_schedules(
    client: AsyncConfplane,
    entity: OptionalEntity = None,
    *,
    ended: Annotated[bool, typer.Option("--ended", help="Those that have ended.")] = False,
) -> None:
    """List temporary changes, newest first, each with the time of its end."""
    listed = client.schedules.list(ended=ended, entity=None if entity is None else entity_of(entity))
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
    )
    for pause in pauses:
        echo(f"Warning: {pause}. `confplane schedules resume` continues", err=True)


@schedules.command(
    epilog=f"Example:\n\n    confplane schedules end 0195f3a0-6c1e-7d3a-9b7e-2f6c1d0a4b5c\n\n{WRITE_CODES}"
)
@served()
async def end(
    client: AsyncConfplane,
    change: Annotated[str, typer.Argument(metavar="CHANGE", help="The id of the change.")],
    *,
    reason: Reason = None,
    ticket: Ticket = None,
) -> None:
    """End a temporary change now: its keys get their earlier values, unless they were changed otherwise since."""
    item: Any = (await client.schedules.end(change, **terms(reason, ticket))).body
    print_result(item, f"The temporary change {change} has ended")
    if (kept := _kept(item)) and not is_json():
        echo(f"Warning: {kept}", err=True)


@schedules.command(epilog=f"Example:\n\n    confplane schedules pause 'an incident is analyzed'\n\n{WRITE_CODES}")
@served()
async def pause(
    client: AsyncConfplane,
    why: Annotated[str, typer.Argument(metavar="REASON", help="The reason, which the list shows.")],
) -> None:
    """Pause all ends in the cluster. `confplane schedules end` still works."""
    found: Any = (await client.schedules.pause(why)).body
    print_result(found, _paused(found["pause"]))


@schedules.command(epilog=f"Example:\n\n    confplane schedules resume --cluster payments\n\n{WRITE_CODES}")
@served()
async def resume(client: AsyncConfplane) -> None:
    """Resume the ends in the cluster. Those that are due follow within seconds."""
    print_result((await client.schedules.resume()).body, "Temporary changes end at their times")


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


def _paused(pause: Mapping[str, Any]) -> str:
    return f"Paused by {pause['principal']} since {pause['since']}: {pause['reason']}"
