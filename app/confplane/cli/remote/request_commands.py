"""``confplane requests``: changes that two people agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.output import echo, is_json, print_changes, print_items, print_json
from confplane.cli.remote.change_commands import values_of
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
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Mapping, Sequence

    from confplane.client import Answer, AsyncConfplane
    from confplane.client.types import ChangeRequestData


commands = CommandGroup()
requests = commands.subgroup("requests")

_EXAMPLE = "Example:\n\n    confplane requests {} 0195f3a0-6c1e-7d3a-9b7e-2f6c1d0a4b5c{}\n\n"
RequestName = Annotated[str, typer.Argument(metavar="REQUEST", help="The id of the request.")]
Comment = Annotated[str | None, typer.Option("--comment", metavar="TEXT", help="A comment on the request.")]


@requests.command("list", epilog=f"Example:\n\n    confplane requests list --state open\n\n{READ_CODES}")
def list_requests(
    entity: OptionalEntity = None,
    *,
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help="Only requests in this state.")] = None,
    as_json: AsLines = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """List change requests, newest first."""
    raise run(profile, cluster, lambda client: _list(client, entity, state))


@requests.command(epilog=f"{_EXAMPLE.format('show', '')}{READ_CODES}")
def show(
    request: RequestName, *, as_json: AsJson = False, cluster: ClusterName = None, profile: ProfileName = None
) -> None:
    """Show a request: the differences that it makes, its approvals, and what happened to it."""
    raise run(profile, cluster, lambda client: _show(client, request))


@requests.command(
    epilog=f"{_EXAMPLE.format('approve', ' --digest 7d2f9c0d1e3b4a6c7d8e9f00112233445566abcd')}{WRITE_CODES}"
)
def approve(
    request: RequestName,
    *,
    digest: Annotated[
        str,
        typer.Option(
            "--digest",
            metavar="DIGEST",
            help="The digest of the content that you have seen, from `confplane requests show`.",
        ),
    ],
    comment: Comment = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Approve a request of another person."""
    raise run(
        profile, cluster, lambda client: _changed(client.change_requests.approve(request, digest, comment=comment))
    )


@requests.command(epilog=f"{_EXAMPLE.format('reject', ' --comment too-much')}{WRITE_CODES}")
def reject(
    request: RequestName,
    *,
    comment: Comment = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Reject a request for good."""
    raise run(profile, cluster, lambda client: _changed(client.change_requests.reject(request, comment)))


@requests.command(epilog=f"{_EXAMPLE.format('cancel', '')}{WRITE_CODES}")
def cancel(
    request: RequestName,
    *,
    comment: Comment = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Cancel a request of your own."""
    raise run(profile, cluster, lambda client: _changed(client.change_requests.cancel(request, comment)))


@requests.command(epilog=f"{_EXAMPLE.format('comment', ' agreed')}{WRITE_CODES}")
def comment(
    request: RequestName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The comment.")],
    *,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Comment on a request."""
    raise run(profile, cluster, lambda client: _changed(client.change_requests.comment(request, text)))


@requests.command(epilog=f"{_EXAMPLE.format('revise', '')}{WRITE_CODES}")
def revise(
    request: RequestName,
    *,
    reason: Reason = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Decide the edits of a request again, on the present state. Its approvals are dropped."""
    raise run(profile, cluster, lambda client: _changed(client.change_requests.revise(request, **terms(reason, None))))


@requests.command(epilog=f"{_EXAMPLE.format('apply', '')}{WRITE_CODES}")
def apply(
    request: RequestName,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Sensitive values, which the request does not store. KEY=@FILE is the file's text; for KEY alone the"
            " value is prompted for and not shown.",
        ),
    ] = None,
    *,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Apply an approved request."""
    raise run(profile, cluster, lambda client: _changed(_apply(client, request, values or ())))


@requests.command(epilog=f"{_EXAMPLE.format('revert', ' --reason harmful')}{WRITE_CODES}")
def revert(
    request: RequestName,
    *,
    reason: Reason = None,
    ticket: Ticket = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Propose the revert of an applied request, as a request of its own."""
    raise run(profile, cluster, lambda client: _changed(_revert(client, request, terms(reason, ticket))))


async def _list(client: AsyncConfplane, name: str | None, state: str | None) -> int:
    listed = client.change_requests.list(state=state, entity=None if name is None else entity_of(name))
    await print_items(
        aiter(listed),
        ("REQUEST", "STATE", "ENTITIES", "AUTHOR", "REASON", "NOTE"),
        _row,
        noun="change requests",
        empty=f"There are no such change requests in the cluster {client.cluster}",
        pages=False,
    )
    return DONE


def _row(item: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    yield (
        item["id"],
        item["state"],
        " ".join(item["entities"]),
        _name(item["author"]),
        item["reason"] or "",
        item["error"] or "; ".join(item["requirements"]),
    )


async def _show(client: AsyncConfplane, request: str) -> int:
    found: Any = (await client.change_requests.get(request)).body
    print_request(found)
    return DONE


async def _changed(sent: Awaitable[Answer[ChangeRequestData]]) -> int:
    """Wait for a change of a request, and print the state after it."""
    found: Any = (await sent).body
    if is_json():
        print_json(found)
    else:
        echo(state_text(found), err=True)
    return DONE


async def _apply(client: AsyncConfplane, request: str, words: Sequence[str]) -> Answer[ChangeRequestData]:
    return await client.change_requests.apply(request, await _supplied(client, request, words))


async def _revert(client: AsyncConfplane, request: str, terms: Mapping[str, Any]) -> Answer[ChangeRequestData]:
    found = (await client.change_requests.get(request)).body
    if found["changeId"] is None:
        raise InvalidRequestError(f"The request is {found['state']}: nothing was written that could be reverted.")
    return await client.change_requests.propose(revert=found["changeId"], **terms)


async def _supplied(client: AsyncConfplane, request: str, words: Sequence[str]) -> list[Any]:
    """Return the sensitive values of a request, for each entity that needs them."""
    values = values_of(words)
    if not values:
        return []
    found = (await client.change_requests.get(request)).body
    return [{**each, "value": values[each["key"]]} for each in found["toSupply"] if each["key"] in values]


def print_request(found: Mapping[str, Any]) -> None:
    """Print a request."""
    if is_json():
        print_json(found)
        return
    echo(state_text(found))
    echo(f"Proposed by {_name(found['author'])}: {found['reason'] or 'no reason was given'}")
    echo(f"Digest: {found['digest']}")
    for change in found["changes"]:
        echo(f"\n{change['id']}, {change['facet']}:")
        print_changes(change["diff"])
    for warning in found["warnings"]:
        echo(f"Warning: {warning}")
    for each in found["differences"]:
        keys = ", ".join(f"{key['key']} is {key['now']}" for key in each["keys"]) or "other keys"
        echo(f"Changed since: {each['entity']}, {each['facet']}: {keys}")
    for event in found["events"]:
        who = "" if event["principal"] is None else f" by {_name(event)}"
        echo(f"{event['at']} {event['action']}{who}{'' if event['text'] is None else ': ' + event['text']}")


def state_text(found: Mapping[str, Any]) -> str:
    """Return the state of a request as a sentence."""
    approvals = ", ".join(map(_name, found["approvals"]))
    approved = f", approved by {approvals}" if approvals else ""
    written = "" if found["changeId"] is None else f", change {found['changeId']}"
    missing = f". Missing: {'; '.join(found['requirements'])}" if found["requirements"] else ""
    return f"Request {found['id']}: {found['state']}{approved}{written}{missing}"


def _name(person: Mapping[str, Any]) -> str:
    principal: str = person["principal"]
    return principal if person["behalfOf"] is None else f"{principal} for {person['behalfOf']}"
