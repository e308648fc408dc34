"""``confplane revert``: shows what a revert would change, asks for confirmation, and reverts."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.output import confirmed, echo, is_json, print_error, print_json, print_table, sides_of
from confplane.cli.remote.changes import report_bypass, report_many
from confplane.cli.remote.entities import entity_of, facets_of, read_entity_values
from confplane.cli.remote.options import BreakGlass, Reason, Since, Ticket, Until, ValidateOnly, WaitApplied, served
from confplane.cli.remote.session import FAILED, UNKNOWN, refusal_texts
from confplane.cli.times import moment_of, time_of
from confplane.client import ClientError, ProblemError
from confplane.domain.errors import InvalidRequestError
from confplane.domain.texts import rfc3339

if TYPE_CHECKING:
    from confplane.client import AsyncConfplane
    from confplane.domain.entities import Entity
    from confplane.domain.facets import FacetName


commands = CommandGroup()


@commands.command(
    epilog="Examples:\n\n"
    "    confplane revert --change 019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10\n\n"
    "    confplane revert --principal User:deployer --since 30m --reason 'a wrong rollout'\n\n"
    "    confplane revert user=alice --to 2h --validate-only\n\n"
    "Exit codes: 0 done; 1 refused, in whole or in part, or not confirmed, or the service did not answer; 2 the"
    " arguments or the profile are not valid; 3 the answer to a write was lost, and it may be done or not."
)
@served()
async def revert(
    client: AsyncConfplane,
    entity: Annotated[
        str | None, typer.Argument(metavar="ENTITY", help="An entity to revert to the time --to.")
    ] = None,
    *,
    change: Annotated[str | None, typer.Option(metavar="ID", help="Revert this change, as `history` shows it.")] = None,
    request_id: Annotated[str | None, typer.Option(metavar="ID", help="Revert all changes of this request.")] = None,
    principal: Annotated[
        str | None, typer.Option(metavar="PRINCIPAL", help="Revert all changes of this principal since --since.")
    ] = None,
    since: Since = None,
    until: Until = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT",
            help="The time to which ENTITY is reverted: a revision, 2026-01-31T12:00:00Z, or a time ago such as 30m.",
        ),
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Revert only this key of the changes. May be repeated.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Revert even if the same keys were changed later.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    validate_only: ValidateOnly = False,
    reason: Reason = None,
    ticket: Ticket = None,
    break_glass: BreakGlass = None,
    wait_applied: WaitApplied = None,
) -> int:
    """Undo changes: set each key to its value before them. The command shows the differences and asks for confirmation.

    A revert is refused if the same keys were changed later; the error lists these changes. Without a terminal, `--yes`
    is required.
    """
    target = _RevertTarget(entity, to, change, request_id, principal, since, until, tuple(key or ()))
    options = {"force": force, "reason": reason, "ticket": ticket, "wait_applied_ms": wait_applied}
    options["break_glass"] = break_glass
    send = await _resolve(client, target, options, asks=not (yes or validate_only))
    plan = await send(True)  # noqa: FBT003 - the only argument
    shown = _shown(plan)
    if not is_json():
        _print(plan)
    if validate_only or not shown:
        if shown:
            report_bypass(break_glass, plan["results"])
        return _end(plan, "Valid; nothing was written" if shown else _nothing(plan))
    for warning in _warnings(plan):
        echo(f"Warning: {warning}", err=True)
    if not (yes or confirmed(f"Revert {_count(plan)}?")):
        return FAILED
    done = await send(False)  # noqa: FBT003 - as above
    if not is_json() and _shown(done) != shown:
        echo("Warning: the outcome differs from the changes above. Reverted:", err=True)
        _print(done)
    report_bypass(break_glass, done["results"])
    return _end(done, f"Reverted {_count(done)}", _warnings(plan))


_Body = dict[str, Any]
"""The response of ``audit:revert``: results by entity and facet, and the skipped changes."""


_Options = Mapping[str, Any]
"""Options of a revert, as arguments of the client library."""
_Send = Callable[[bool], Awaitable[_Body]]
"""Validates a revert (True), or makes it (False)."""


@dataclass(frozen=True, slots=True)
class _RevertTarget:
    """The arguments that select what to revert."""

    entity: str | None
    to: str | None
    change: str | None
    request_id: str | None
    principal: str | None
    since: str | None
    until: str | None
    keys: tuple[str, ...]


async def _resolve(client: AsyncConfplane, target: _RevertTarget, options: _Options, *, asks: bool) -> _Send:
    """Return the revert that the command line names.

    Raises:
        InvalidRequestError: The command line names no revert or more than one, or a part of it is not valid.
    """
    named = [each for each in (target.entity, target.change, target.request_id, target.principal) if each is not None]
    if len(named) != 1:
        raise InvalidRequestError("Give ENTITY with --to, --change, --request-id, or --principal with --since.")
    if (target.entity is None) != (target.to is None):
        hint = "" if target.entity is None or "=" in target.entity else f" For a change: --change {target.entity}."
        raise InvalidRequestError(f"--to is required with ENTITY, and only allowed with it.{hint}")
    if (target.principal is None) != (target.since is None) or (target.until is not None and target.principal is None):
        raise InvalidRequestError("--principal requires --since. --since and --until are only for --principal.")
    if asks and (is_json() or not sys.stdin.isatty()):
        raise InvalidRequestError("A confirmation needs a terminal. Use --yes, or --validate-only to see the changes.")
    if target.entity is None or target.to is None:
        selection, keys = _selection(target), target.keys or None
        if asks and target.principal is not None:
            # The confirmation is for the changes of the preview, and not for later ones of the principal.
            selection.setdefault("until", rfc3339(datetime.now(timezone.utc)))
        return lambda validate_only: _revert_changes(
            client, selection, {**options, "keys": keys, "validate_only": validate_only}
        )
    if target.keys:
        raise InvalidRequestError("--key is for changes. A revert of ENTITY includes all of its keys.")
    entity, to = entity_of(target.entity), moment_of(target.to, "--to")
    etags = {facet: answer.etag for facet, answer in (await read_entity_values(client, entity)).items()}
    return lambda validate_only: _revert_entity(client, entity, to, etags, {**options, "validate_only": validate_only})


async def _revert_changes(client: AsyncConfplane, selection: dict[str, str], options: _Options) -> _Body:
    """Send a revert of changes; a refusal of all entities is a valid response too."""
    try:
        return {**(await client.audit.revert(selection, **options)).body}
    except ProblemError as error:
        if "results" not in error.body:
            raise
        return error.body


async def _revert_entity(
    client: AsyncConfplane, entity: Entity, to: str, etags: Mapping[FacetName, str | None], options: _Options
) -> _Body:
    """Send a revert of each facet. It is refused if other changes were made since the command read the ETags."""
    results: list[_Body] = []
    for facet in facets_of(entity):
        condition: Any = {"if_match": etags[facet]} if facet in etags else {"if_none_match": "*"}
        try:
            answer = await client.resources(facet).revert(entity, to, **condition, **options)
        except ClientError:
            done = _body(results)
            if not options["validate_only"] and _shown(done):
                echo(f"Reverted {_count(done)}; then:", err=True)
            raise
        results.append({**answer.body})
    return _body(results)


def _selection(target: _RevertTarget) -> dict[str, str]:
    if target.change is not None:
        try:
            return {"changeId": str(uuid.UUID(target.change))}
        except ValueError:
            raise InvalidRequestError(f"--change {target.change} is not a valid change id") from None
    if target.request_id is not None:
        return {"requestId": target.request_id}
    # Read once, so that the plan and the revert have the same time span.
    span = {"since": target.since, "until": target.until}
    times = {name: time_of(text, f"--{name}") for name, text in span.items() if text is not None}
    return {"principal": target.principal or "", **times}


def _body(results: list[_Body]) -> _Body:
    return {"failed": 0, "skipped": [], "results": results}


def _shown(body: _Body) -> list[tuple[str, str, str, str]]:
    """Return the rows of the keys that change."""
    return [
        (result["id"], *sides_of(change))
        for result in body["results"]
        if not result["errorCode"]
        for change in result["diff"]
    ]


def _count(body: _Body) -> str:
    rows = _shown(body)
    keys, entities = len(rows), len({row[0] for row in rows})
    return f"{keys} {'key' if keys == 1 else 'keys'} of {entities} {'entity' if entities == 1 else 'entities'}"


def _nothing(body: _Body) -> str:
    if body["failed"]:
        return "Nothing was written"
    return "Nothing to change: these keys already have their earlier values"


def _print(body: _Body) -> None:
    """Print the keys that change, and on standard error the skipped changes with the reasons."""
    if rows := _shown(body):
        print_table(("ENTITY", "KEY", "BEFORE", "AFTER"), rows)
    for result in body["results"]:
        for text in refusal_texts(result) if result["errorCode"] else ():
            echo(f"Not reverted: {result['id']}: {text}", err=True)
    for each in body["skipped"]:
        echo(f"Left out: change {each['changeId']}: {each['reason']}", err=True)


def _end(body: _Body, said: str, warned: Sequence[str] = ()) -> int:
    """Print the result, as JSON too if requested, with the warnings not printed yet, and return the exit code."""
    if is_json():
        print_json({name: body[name] for name in ("failed", "skipped", "results")})
    for warning in _warnings(body):
        if warning not in warned:
            echo(f"Warning: {warning}", err=True)
    if is_json() and body["failed"]:
        print_error(said, FAILED, refused=body["failed"])
    else:
        echo(said, err=True)
    if any(result.get("outcome") == "unknown" for result in body["results"]):
        return UNKNOWN
    taken = report_many((result["id"], result) for result in body["results"])
    return FAILED if body["failed"] else taken


def _warnings(body: _Body) -> list[str]:
    """Return the warnings of the entities that change, each once."""
    found = (warning for result in body["results"] if result["diff"] for warning in result["warnings"])
    return list(dict.fromkeys(found))
