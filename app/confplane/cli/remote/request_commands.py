"""``confplane requests``: changes that two people agree on."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.output import echo, is_json, print_changes, print_items, print_json, print_result
from confplane.cli.remote.audit_commands import print_entities
from confplane.cli.remote.change_commands import values_of
from confplane.cli.remote.entities import entity_of
from confplane.cli.remote.options import (
    READ_CODES,
    WRITE_CODES,
    ApplyAt,
    ExpiresAt,
    OptionalEntity,
    Reason,
    Ticket,
    served,
    terms,
    times_of,
)
from confplane.client import ProblemError
from confplane.domain.errors import InvalidRequestError
from confplane.domain.texts import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confplane.client import Answer, AsyncConfplane
    from confplane.client.types import ChangeRequestData


_LONGEST_WRITE: Final = timedelta(minutes=5)
"""The time in which a change past the rules is made."""
_CLOCKS: Final = timedelta(minutes=1)
"""The clock of the request may be ahead of that of the trail."""


commands = CommandGroup()
requests = commands.subgroup("requests")

_EXAMPLE = "Example:\n\n    confplane requests {} 0195f3a0-6c1e-7d3a-9b7e-2f6c1d0a4b5c{}\n\n"
RequestName = Annotated[str, typer.Argument(metavar="REQUEST", help="The id of the request.")]
Comment = Annotated[str | None, typer.Option("--comment", metavar="TEXT", help="A comment on the request.")]


@requests.command("list", epilog=f"Example:\n\n    confplane requests list --state open\n\n{READ_CODES}")
@served(as_lines=True)
async def list_requests(
    client: AsyncConfplane,
    entity: OptionalEntity = None,
    *,
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help="Only requests in this state.")] = None,
) -> None:
    """List change requests, newest first."""
    listed = client.change_requests.list(state=state, entity=None if entity is None else entity_of(entity))
    await print_items(
        aiter(listed),
        ("REQUEST", "STATE", "ENTITIES", "AUTHOR", "REASON", "NOTE"),
        _row,
        noun="change requests",
        empty=f"There are no such change requests in the cluster {client.cluster}",
    )


@requests.command(epilog=f"{_EXAMPLE.format('show', '')}{READ_CODES}")
@served()
async def show(client: AsyncConfplane, request: RequestName) -> None:
    """Show a request: the differences that it makes, its approvals, and what happened to it."""
    found: Any = (await client.change_requests.get(request)).body
    if is_json():
        print_json(found)
        return
    echo(_state_text(found))
    echo(f"Proposed by {_name(found['author'])}: {found['reason'] or 'no reason was given'}")
    echo(f"Digest: {found['digest']}")
    if found["kind"] == "break-glass":
        echo(f"A change past the rules, of {', '.join(found['entities'])}")
    if found["state"] == "open":
        verb = "acknowledge" if found["kind"] == "break-glass" else "approve"
        echo(f"To {verb} it: confplane requests approve {found['id']} --digest {found['digest']}")
    for change in found["changes"]:
        echo(f"\n{change['id']}, {change['facet']}:")
        print_changes(change["diff"])
    if found["kind"] == "break-glass":
        await _print_written(client, found)
    for rule in found["approvalRules"]:
        given = ", ".join(map(_name, rule["given"])) or "nobody"
        echo(
            f"Rule {rule['rule']}: {rule['count']} of {', '.join(rule['approvers'])} for {', '.join(rule['entities'])};"
            f" approved by {given}, {rule['missing']} missing"
        )
    for warning in found["warnings"]:
        echo(f"Warning: {warning}")
    for each in found["differences"]:
        keys = ", ".join(f"{key['key']} is {key['now']}" for key in each["keys"]) or "other keys"
        echo(f"Changed since: {each['entity']}, {each['facet']}: {keys}")
    for event in found["events"]:
        who = "" if event["principal"] is None else f" by {_name(event)}"
        echo(f"{event['at']} {event['action']}{who}{'' if event['text'] is None else ': ' + event['text']}")


@requests.command(
    epilog=f"{_EXAMPLE.format('approve', ' --digest 7d2f9c0d1e3b4a6c7d8e9f00112233445566abcd')}{WRITE_CODES}"
)
@served()
async def approve(
    client: AsyncConfplane,
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
) -> None:
    """Approve a request of another person."""
    _show_state(await client.change_requests.approve(request, digest, comment=comment))


@requests.command(epilog=f"{_EXAMPLE.format('reject', ' --comment too-much')}{WRITE_CODES}")
@served()
async def reject(client: AsyncConfplane, request: RequestName, *, comment: Comment = None) -> None:
    """Reject a request for good."""
    _show_state(await client.change_requests.reject(request, comment))


@requests.command(epilog=f"{_EXAMPLE.format('cancel', '')}{WRITE_CODES}")
@served()
async def cancel(client: AsyncConfplane, request: RequestName, *, comment: Comment = None) -> None:
    """Cancel a request of your own."""
    _show_state(await client.change_requests.cancel(request, comment))


@requests.command(epilog=f"{_EXAMPLE.format('comment', ' agreed')}{WRITE_CODES}")
@served()
async def comment(
    client: AsyncConfplane,
    request: RequestName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The comment.")],
) -> None:
    """Comment on a request."""
    _show_state(await client.change_requests.comment(request, text))


@requests.command(epilog=f"{_EXAMPLE.format('revise', ' --apply-at 2h')}{WRITE_CODES}")
@served()
async def revise(
    client: AsyncConfplane,
    request: RequestName,
    *,
    apply_at: ApplyAt = None,
    expires_at: ExpiresAt = None,
    unscheduled: Annotated[
        bool, typer.Option("--no-apply-at", help="Let it be applied when somebody applies it.")
    ] = False,
    draft: Annotated[bool, typer.Option("--draft", help="Leave a draft a draft. Otherwise it is proposed.")] = False,
    reason: Reason = None,
) -> None:
    """Decide the edits of a request again, on the present state, with other times if any are given.

    Its approvals are dropped, and a draft is proposed. Times that are not given stay as they are.
    """
    if unscheduled and apply_at is not None:
        raise InvalidRequestError("Give --apply-at or --no-apply-at, not both.")
    given = times_of(apply_at, expires_at)
    names = {"apply_at": "applyAt", "expires_at": "expiresAt"}
    times: dict[str, str | None] = {names[name]: time for name, time in given.items()}
    times |= {"applyAt": None} if unscheduled else {}
    _show_state(await client.change_requests.revise(request, times=times, draft=draft, **terms(reason, None)))


@requests.command(epilog=f"{_EXAMPLE.format('apply', '')}{WRITE_CODES}")
@served()
async def apply(
    client: AsyncConfplane,
    request: RequestName,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Sensitive values, which the request does not store. KEY=@FILE is the file's text; for KEY alone the"
            " value is prompted for and not shown.",
        ),
    ] = None,
) -> None:
    """Apply an approved request."""
    given = values_of(values or ())
    supplied: list[Any] = []
    if given:
        found = (await client.change_requests.get(request)).body
        supplied = [{**each, "value": given[each["key"]]} for each in found["toSupply"] if each["key"] in given]
    _show_state(await client.change_requests.apply(request, supplied))


@requests.command(epilog=f"{_EXAMPLE.format('revert', ' --reason harmful')}{WRITE_CODES}")
@served()
async def revert(
    client: AsyncConfplane,
    request: RequestName,
    *,
    partly: Annotated[
        bool,
        typer.Option(
            "--partly", help="Leave out entities whose keys were changed since, or whose earlier values are not kept."
        ),
    ] = False,
    apply_at: ApplyAt = None,
    expires_at: ExpiresAt = None,
    reason: Reason = None,
    ticket: Ticket = None,
) -> None:
    """Propose the revert of an applied request, as a request of its own."""
    times: Any = times_of(apply_at, expires_at)
    _show_state(await client.change_requests.revert(request, partly=partly, **times, **terms(reason, ticket)))


async def _print_written(client: AsyncConfplane, found: Mapping[str, Any]) -> None:
    """Print the changes that were made past the rules, as far as the caller may read the trail."""
    began = datetime.fromisoformat(found["createdAt"].replace("Z", "+00:00"))
    since, until = rfc3339(began - _CLOCKS), rfc3339(began + _LONGEST_WRITE)
    author = found["author"]["principal"]
    try:
        async for change in client.audit.search(principal=author, since=since, until=until, page_size=500):
            if change["applies"] == found["id"]:
                echo(f"\nChange {change['changeId']}, {change['outcome']}:")
                print_entities(change)
    except ProblemError as error:
        echo(f"Its changes can't be read: {error}", err=True)


def _row(item: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    yield (
        item["id"],
        item["state"],
        " ".join(item["entities"]),
        _name(item["author"]),
        item["reason"] or "",
        item["error"] or "; ".join(item["requirements"]) or _to_acknowledge(item),
    )


def _to_acknowledge(item: Mapping[str, Any]) -> str:
    """Return the note of a change past the rules that nobody has acknowledged yet; '' for any other request."""
    return "to acknowledge" if item["kind"] == "break-glass" and item["state"] == "open" else ""


def _show_state(answer: Answer[ChangeRequestData]) -> None:
    found: Any = answer.body
    print_result(found, _state_text(found))


def _state_text(found: Mapping[str, Any]) -> str:
    """Return the state of a request as a sentence."""
    approvals = ", ".join(map(_name, found["approvals"]))
    approved = f", approved by {approvals}" if approvals else ""
    written = "" if found["changeId"] is None else f", change {found['changeId']}"
    missing = f". Missing: {'; '.join(found['requirements'])}" if found["requirements"] else ""
    return f"Request {found['id']}: {found['state']}{approved}{written}{missing}"


def _name(person: Mapping[str, Any]) -> str:
    principal: str = person["principal"]
    return principal if person["behalfOf"] is None else f"{principal} for {person['behalfOf']}"
