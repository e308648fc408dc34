"""``confplane webhooks``: subscriptions to the feed whose events are sent to URLs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.output import echo, is_json, print_items, print_json, print_result, print_table
from confplane.cli.remote.options import (
    READ_CODES,
    WRITE_CODES,
    AsJson,
    ClusterName,
    ProfileName,
    Reason,
    Ticket,
    served,
    terms,
)
from confplane.cli.remote.session import DONE, FAILED, run
from confplane.cli.times import duration_of
from confplane.domain.entities import EntityTypeName
from confplane.domain.facets import FacetNameText

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confplane.client import Answer, AsyncConfplane


commands = CommandGroup()
webhooks = commands.subgroup("webhooks")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the webhook.")]
_STDIN = "-"


@webhooks.command("list", epilog=f"Example:\n\n    confplane webhooks list --cluster payments\n\n{READ_CODES}")
@served(as_lines=True)
async def list_webhooks(client: AsyncConfplane) -> None:
    """List webhooks, each with its owner and the state of its deliveries."""
    await print_items(
        aiter(client.webhooks.list()),
        ("NAME", "URL", "FORMAT", "FILTER", "OWNER", "STATE", "NOTE"),
        _row,
        noun="webhooks",
        empty=f"There are no webhooks in the cluster {client.cluster}",
    )


@webhooks.command(epilog=f"Example:\n\n    confplane webhooks show slack-topics\n\n{READ_CODES}")
@served()
async def show(client: AsyncConfplane, name: _Name) -> None:
    """Show a webhook. The path, the query and the user info of its URL are secrets, and are never shown."""
    item = (await client.webhooks.get(name)).body
    if is_json():
        print_json(item)
        return
    status = item["status"]
    facts = {
        **{member: item[member] for member in ("name", "url", "format", "owner", "note")},
        "filter": _filter_text(item),
        "created": f"{item['createdAt']} by {item['createdBy']}",
        "state": status["state"],
        "parked because": status["reason"],
        "failed attempts": status["failedAttempts"] or None,
        "failing since": status["failingSince"],
        "next attempt": status["nextAttemptAt"],
        "last delivered": status["lastDeliveredAt"],
    }
    print_table(("WEBHOOK", ""), [(fact, str(value)) for fact, value in facts.items() if value is not None])


@webhooks.command(
    "put",
    epilog="Examples:\n\n"
    "    confplane webhooks put slack-topics --url-file url.txt --format slack --entity-type topic\n\n"
    '    printf %s "$URL" | confplane webhooks put audit --url-file -\n\n'
    "    confplane webhooks put reviews --url-file url.txt --format slack --requests only\n\n"
    f"    confplane webhooks put slack-topics --format slack --entity-type broker    (the URL stays)\n\n{WRITE_CODES}",
)
def put_webhook(
    name: _Name,
    *,
    url_file: Annotated[
        Path | None,
        typer.Option(
            "--url-file",
            metavar="FILE",
            allow_dash=True,
            help="A file with the URL; - is standard input. The URL itself is not an option, because other users of the"
            " machine see options.",
            show_default="the URL stays",
        ),
    ] = None,
    form: Annotated[
        Literal["cloudevents", "slack", "teams"], typer.Option("--format", help="The form of the requests.")
    ] = "cloudevents",
    facet: Annotated[FacetNameText | None, typer.Option(help="Only changes of this facet.")] = None,
    entity_type: Annotated[
        EntityTypeName | None,
        typer.Option("--entity-type", help="Only entities of this type."),
    ] = None,
    entity: Annotated[str | None, typer.Option(metavar="ENTITY", help="Only this entity.")] = None,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Only this user and its client-ids.")] = None,
    prefix: Annotated[str | None, typer.Option(metavar="TEXT", help="Only entities whose last name begins so.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only entities of which this key changed.")] = None,
    principal: Annotated[str | None, typer.Option(metavar="PRINCIPAL", help="Only changes of this principal.")] = None,
    requests: Annotated[
        Literal["include", "only"] | None,
        typer.Option(help="Events of change requests as well, or no others.", show_default="none of them"),
    ] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="A note for people.")] = None,
    reason: Reason = None,
    ticket: Ticket = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Create a webhook, or replace one. A new signing secret is printed, once."""
    url = None if url_file is None else _read(url_file)
    filters = {
        "facet": facet,
        "entityType": entity_type,
        "entity": entity,
        "user": user,
        "prefix": prefix,
        "key": key,
        "principal": principal,
        "requests": requests,
    }
    body: Any = {
        "url": url,
        "format": form,
        "filter": {member: value for member, value in filters.items() if value is not None},
        "note": note,
    }

    async def put(client: AsyncConfplane) -> None:
        _show_change(await client.webhooks.put(name, body, **terms(reason, ticket)), "is stored")

    raise run(profile, cluster, put)


@webhooks.command(epilog=f"Example:\n\n    confplane webhooks delete slack-topics\n\n{WRITE_CODES}")
@served()
async def delete(client: AsyncConfplane, name: _Name, *, reason: Reason = None, ticket: Ticket = None) -> None:
    """Delete a webhook."""
    _show_change(await client.webhooks.delete(name, **terms(reason, ticket)), "is deleted")


@webhooks.command(epilog=f"Example:\n\n    confplane webhooks assign audit --owner User:olga\n\n{WRITE_CODES}")
@served()
async def assign(
    client: AsyncConfplane,
    name: _Name,
    *,
    owner: Annotated[str, typer.Option(metavar="User:NAME", help="The new owner, whose grants choose the changes.")],
    reason: Reason = None,
    ticket: Ticket = None,
) -> None:
    """Hand a webhook over to another owner: yourself, or a user who sees no more than you."""
    _show_change(await client.webhooks.assign(name, owner, **terms(reason, ticket)), "is handed over")


@webhooks.command(epilog=f"Example:\n\n    confplane webhooks resume audit --reason 'repaired'\n\n{WRITE_CODES}")
@served()
async def resume(client: AsyncConfplane, name: _Name, *, reason: Reason = None, ticket: Ticket = None) -> None:
    """Continue a parked webhook with the first change that was not delivered, or try a failing one at once."""
    _show_change(await client.webhooks.resume(name, **terms(reason, ticket)), "is resumed")


@webhooks.command(epilog=f"Example:\n\n    confplane webhooks rotate audit --overlap 1d\n\n{WRITE_CODES}")
@served()
async def rotate(
    client: AsyncConfplane,
    name: _Name,
    *,
    overlap: Annotated[
        str,
        typer.Option(
            metavar="AGE", help="How long requests are signed with the old secret too: a number and s, m, h or d."
        ),
    ] = "1d",
    reason: Reason = None,
    ticket: Ticket = None,
) -> None:
    """Replace the signing secret of a webhook, and print the new one, once."""
    overlap_s = duration_of(overlap, "--overlap")
    _show_change(await client.webhooks.rotate(name, overlap_s=overlap_s, **terms(reason, ticket)), "has a new secret")


@webhooks.command("test", epilog=f"Example:\n\n    confplane webhooks test slack-topics\n\n{WRITE_CODES}")
@served()
async def send_sample(client: AsyncConfplane, name: _Name) -> int:
    """Send a sample now, and show the result. The exit code is 1 if the receiver did not take it."""
    delivery = (await client.webhooks.test(name)).body["delivery"]
    if is_json():
        print_json(delivery)
    elif delivery is not None:
        took = f"{delivery['durationMs']} ms"
        echo(
            f"Delivered in {took}" if delivery["error"] is None else f"Not delivered, after {took}: {delivery['error']}"
        )
    return DONE if delivery is None or delivery["error"] is None else FAILED


@webhooks.command(epilog=f"Example:\n\n    confplane webhooks deliveries slack-topics\n\n{READ_CODES}")
@served(as_lines=True)
async def deliveries(client: AsyncConfplane, name: _Name) -> None:
    """List the last 50 requests of a webhook, newest first, each with its result."""
    await print_items(
        aiter(client.webhooks.deliveries(name)),
        ("TIME", "EVENT", "TYPE", "ATTEMPT", "STATUS", "MS", "ERROR"),
        lambda item: [
            (
                *(item["time"], item["eventId"], item["eventType"], str(item["attempt"])),
                *(str(item["status"] or ""), str(item["durationMs"]), item["error"] or ""),
            )
        ],
        noun="deliveries",
        empty=f"The webhook {name} has sent nothing yet",
    )


def _read(file: Path) -> str:
    if str(file) == _STDIN:
        return sys.stdin.read().strip()
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise typer.BadParameter(f"{file} can't be read: {reason}") from None


def _row(item: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    yield (
        *(item[member] for member in ("name", "url", "format")),
        _filter_text(item),
        *(item["owner"], item["status"]["state"], item["note"] or ""),
    )


def _filter_text(item: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in item["filter"].items() if value is not None)


def _show_change(answer: Answer[Any], what: str) -> None:
    """Print a changed webhook, with its new secret if there is one."""
    item = answer.body
    print_result(item, f"The webhook {item['name']} {what}")
    if "secret" in item and not is_json():
        echo("Its signing secret, which is not shown again:", err=True)
        echo(item["secret"])
