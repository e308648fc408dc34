"""``confplane watch``: print changes as they happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.output import ABSENT, author_text, echo, is_json, print_json, reason_text, value_text
from confplane.cli.remote import completion
from confplane.cli.remote.entities import entity_of
from confplane.cli.remote.options import READ_CODES, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from confplane.client import AsyncConfplane
    from confplane.client.types import FeedEventData, FeedKey, FeedState

commands = CommandGroup()


@commands.command(
    epilog="Examples:\n\n"
    "    confplane watch\n\n"
    "    confplane watch user=alice\n\n"
    "    confplane watch --facet configs --prefix orders- --json\n\n"
    "    confplane watch --snapshot --prefix orders-\n\n"
    "    confplane watch --requests\n\n"
    f"{READ_CODES}"
)
@served(as_lines=True)
async def watch(
    client: AsyncConfplane,
    entity: Annotated[
        str | None,
        typer.Argument(
            metavar="ENTITY",
            help="Only changes of this entity.",
            show_default="all entities",
            autocompletion=completion.entity_ids,
        ),
    ] = None,
    *,
    facet: Annotated[
        str | None, typer.Option("--facet", metavar="FACET", help="Only client-quotas, client-configs or configs.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="TEXT", help="Only entities whose last name begins so.")
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="ID", help="Continue after the event with this `id` of --json.", show_default="now"
        ),
    ] = None,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="Print the current values first. Not if --after is given.")
    ] = False,
    requests: Annotated[bool, typer.Option("--requests", help="Print events of change requests too.")] = False,
) -> None:
    """Print changes as they happen, until you press Ctrl-C.

    Changes that were made outside Confplane are marked `(external)`, and may come more than once. Those in a Kafka 4
    cluster that were undone are marked `(put-back)`, current values `(state)`, and events of change requests
    `(request)`.
    """
    wanted = None if entity is None else entity_of(entity).id
    filters: dict[str, Any] = {"facet": facet, "prefix": prefix, "after": after, "snapshot": snapshot}
    if requests:
        filters["requests"] = "include"
    async for event in client.changes(entity=wanted, **filters):
        if is_json():
            print_json(event)
        elif event["type"] == "bookmark":
            pass  # the end of the current values
        elif event["type"] == "reset":
            echo(f"{event['time']}  configs were imported, or a change can't be shown: list them again")
        else:
            for line in _lines(event):
                echo(line.replace("\n", "\\n"))


def _lines(event: FeedEventData | FeedState) -> Iterator[str]:
    """Yield a line for each key."""
    if event["type"] == "state":
        for entity in event["entities"]:
            for key in entity["keys"]:
                value = value_text(None if key["sensitive"] else key["after"])
                yield "  ".join([event["time"], "(state)", entity["id"], f"{key['key']}: {value}"])
        return
    if "request" in event:
        request, why = event["request"], reason_text(event)
        what = f"{', '.join(request['entities'])}: {request['event']}  {request['id']}"
        yield "  ".join([event["time"], author_text({**event, "kind": "request"}), what, *([why] if why else [])])
        return
    kind = event["type"] if event["type"] == "put-back" else "external" if event["source"] == "external" else "change"
    who, why = author_text({**event, "kind": kind}), reason_text(event)
    for entity in event["entities"]:
        for key in entity["keys"]:
            if key["before"] == key["after"] and not key["sensitive"]:
                continue  # of several external writes as one
            yield "  ".join([event["time"], who, entity["id"], _difference(key), *([why] if why else [])])
    if event.get("truncated"):
        yield f"{event['time']}  {who}  and further entities: confplane audit {event['changeId']}"


def _difference(key: FeedKey) -> str:
    if key["sensitive"]:
        return f"{key['key']}: {value_text(None)}"
    before, after = [ABSENT if value is None else value_text(value) for value in (key["before"], key["after"])]
    return f"{key['key']}: {before} -> {after}"
