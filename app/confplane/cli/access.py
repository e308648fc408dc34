"""The work of ``confplane tokens`` and ``confplane grants`` on Postgres."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from confplane.cli import callers
from confplane.cli.output import echo, print_error, print_json, print_table
from confplane.domain.access.operations import PatternType, ResourceType
from confplane.domain.errors import InvalidRequestError
from confplane.files import atomic_write
from confplane.services.access_admin.overview import own_rights, rights_of
from confplane.services.access_admin.pagination import read_all
from confplane.services.access_admin.views import grant_view, token_view
from confplane.services.etags import Precondition
from confplane.wiring import open_access

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path
    from typing import TextIO
    from uuid import UUID

    from confplane.domain.access.grants import Grant
    from confplane.services.access_admin.grants import NewGrant
    from confplane.services.access_admin.overview import Right
    from confplane.services.access_admin.tokens import CreatedToken, NewToken
    from confplane.services.changes.callers import Caller
    from confplane.settings import Settings


@dataclass(frozen=True, slots=True)
class TokenDestination:
    """The place of a new token's text."""

    output: Path | None
    """A file; None for standard output."""
    as_json: bool
    """Print the token as JSON, with its text unless that is in the file."""


def create_token(
    settings: Settings, wanted: NewToken, lifetime_s: int | None, destination: TokenDestination, caller: Caller
) -> int:
    """Create a token, write its text, and return the exit code."""
    return _run(_create(settings, wanted, lifetime_s, destination, caller), "Not created", destination)


def rotate_token(
    settings: Settings,
    token_id: UUID,
    overlap_s: int,
    lifetime_s: int | None,
    destination: TokenDestination,
    caller: Caller,
) -> int:
    """Replace a token, write the text of the new one, and return the exit code."""
    return _run(_rotate(settings, token_id, overlap_s, lifetime_s, destination, caller), "Not rotated", destination)


async def _create(
    settings: Settings, wanted: NewToken, lifetime_s: int | None, destination: TokenDestination, caller: Caller
) -> int:
    with _open_output(destination.output) as file:
        async with open_access(settings) as services:
            if lifetime_s is not None:
                wanted = replace(wanted, expires_at=services.tokens.now + timedelta(seconds=lifetime_s))
            made = await services.tokens.create(wanted, caller)
        _write(made, file, as_json=destination.as_json)
    return callers.DONE


async def list_tokens(settings: Settings, principal: str | None, *, as_json: bool, caller: Caller) -> int:
    """Print tokens, and return the exit code."""
    async with open_access(settings) as services:
        now = services.tokens.now
        found = await read_all(partial(services.tokens.page, principal, caller.access))
    items = [token_view(token, now) for token in found]
    if as_json:
        for item in items:
            print_json(item)
    else:
        members = ("id", "principal", "status", "expiresAt", "lastUsedAt", "owner", "note")
        rows = [[item[member] or "-" for member in members] for item in items]
        print_table(("ID", "PRINCIPAL", "STATUS", "EXPIRES", "LAST USED", "OWNER", "NOTE"), rows)
    return callers.DONE


async def revoke_token(settings: Settings, token_id: UUID, caller: Caller, *, with_created: bool, as_json: bool) -> int:
    """Revoke a token, and return the exit code."""
    async with open_access(settings) as services:
        found = await services.tokens.revoke(token_id, caller, with_created=with_created)
        now = services.tokens.now
    token = found.token
    if as_json:
        print_json({"token": token_view(token, now), "revokedWith": found.revoked, "activeWith": found.active})
        return callers.DONE
    echo(f"The token {token.id} of {token.principal} is revoked; every process refuses it within two seconds")
    if found.revoked:
        echo(f"Tokens that were created with it, and are revoked too: {found.revoked}")
    if found.active:
        echo(
            f"Active tokens that were created with it: {found.active}. `confplane tokens revoke {token.id}"
            " --with-created` revokes them too",
            err=True,
        )
    return callers.DONE


async def confirm_tokens(settings: Settings, caller: Caller, *, as_json: bool) -> int:
    """Admit the tokens of a restored Postgres, and return the exit code."""
    async with open_access(settings) as services:
        confirmed = await services.tokens.confirm(caller)
    if as_json:
        print_json({"confirmed": confirmed})
        return callers.DONE
    echo(
        "The tokens are confirmed; every process admits them within two seconds"
        if confirmed
        else "No tokens are waiting for a confirmation; nothing to do"
    )
    return callers.DONE


async def invalidate_tokens(settings: Settings, before: datetime, caller: Caller, *, as_json: bool) -> int:
    """Revoke the tokens created before a time, and return the exit code."""
    async with open_access(settings) as services:
        count = await services.tokens.invalidate(before, caller)
    if as_json:
        print_json({"revoked": count})
        return callers.DONE
    revoked = callers.pluralize(count, "token is", "tokens are")
    echo(f"{revoked} revoked; every process refuses them within two seconds")
    return callers.DONE


async def _rotate(
    settings: Settings,
    token_id: UUID,
    overlap_s: int,
    lifetime_s: int | None,
    destination: TokenDestination,
    caller: Caller,
) -> int:
    with _open_output(destination.output) as file:
        async with open_access(settings) as services:
            expires_at = None if lifetime_s is None else services.tokens.now + timedelta(seconds=lifetime_s)
            made = await services.tokens.rotate(token_id, overlap_s, caller, expires_at=expires_at)
            old = await services.tokens.find(token_id, caller.access)
        _write(made, file, as_json=destination.as_json)
    echo(f"The old token {old.id} is valid until {token_view(old, made.token.created_at)['expiresAt']}", err=True)
    return callers.DONE


def _run(work: Coroutine[None, None, int], failure: str, destination: TokenDestination) -> int:
    try:
        return callers.run(work, failure)
    except OSError as error:
        return print_error(
            f"{destination.output} can't be written: {error.strerror}. If `confplane tokens list` shows a new token,"
            " revoke it.",
            callers.FAILED,
        )


def _open_output(output: Path | None) -> AbstractContextManager[TextIO | None]:
    """Return the file for a token, which only its owner can read; None for standard output.

    The file is created before the token, so that no token is lost if the file can't be created.
    """
    return nullcontext() if output is None else atomic_write(output, mode=0o600)


def _write(made: CreatedToken, file: TextIO | None, *, as_json: bool) -> None:
    token = made.token
    view = token_view(token, token.created_at)
    if file is not None:
        file.write(f"{made.text}\n")
    if as_json:
        print_json(view | ({"token": made.text} if file is None else {}))
    elif file is None:
        echo(made.text or "")
    until = view["expiresAt"]
    echo(f"The token {token.id} of {token.principal} is valid until {until}; its text is shown this once", err=True)


async def create_grant(settings: Settings, wanted: NewGrant, caller: Caller, *, as_json: bool) -> int:
    """Create a grant, and return the exit code."""
    async with open_access(settings) as services:
        stored, is_new = await services.grants.create(wanted, caller)
    if as_json:
        print_json(grant_view(stored))
        return callers.DONE
    done = "Created" if is_new else "There is already"
    echo(f"{done} the grant {stored.grant.id}: {_text(stored.grant)}")
    return callers.DONE


async def list_grants(
    settings: Settings, principal: str | None, cluster: str | None, *, as_json: bool, caller: Caller
) -> int:
    """Print grants, and return the exit code."""
    async with open_access(settings) as services:
        found = await read_all(partial(services.grants.page, principal, cluster, caller.access))
    if as_json:
        for stored in found:
            print_json(grant_view(stored))
    else:
        rows = [
            (
                str(each.grant.id),
                each.grant.principal,
                each.grant.permission.value,
                each.grant.cluster or "all",
                _right(each.grant),
                _resource(each.grant),
                ", ".join(sorted(each.grant.also_denies())) or "-",
                each.note or "-",
            )
            for each in found
        ]
        heads = ("ID", "PRINCIPAL", "PERMISSION", "CLUSTER", "RIGHT", "RESOURCE", "ALSO DENIES", "NOTE")
        print_table(heads, rows)
        if any(each.grant.also_denies() for each in found):
            echo(
                "ALSO DENIES: earlier releases left these operations in place. They are denied now, unless a separate"
                " grant allows them (docs/access.md#denies).",
                err=True,
            )
    return callers.DONE


async def remove_grant(settings: Settings, grant_id: UUID, caller: Caller, *, as_json: bool) -> int:
    """Remove a grant, and return the exit code."""
    async with open_access(settings) as services:
        stored = await services.grants.remove(grant_id, Precondition(), caller)
    if as_json:
        print_json(grant_view(stored))
        return callers.DONE
    echo(f"Removed the grant {grant_id}: {_text(stored.grant)}")
    return callers.DONE


async def show_grants(
    settings: Settings, principal: str | None, group: str | None, cluster: str, caller: Caller, *, as_json: bool
) -> int:
    """Print the rights of a user or group in a cluster, and return the exit code."""
    settings.cluster(cluster)
    async with open_access(settings) as services:
        found = await services.overview.grants_of(principal, group, cluster, caller.access)
    rows = [
        (
            stored.grant.permission.value,
            right.operation.value,
            _named(right),
            stored.grant.principal,
            str(stored.grant.id),
        )
        for stored in found
        for right in rights_of(stored.grant)
    ]
    if principal is not None:
        rows += [("allow", right.operation.value, _named(right), principal, "-") for right in own_rights(principal)]
    if as_json:
        members = ("permission", "operation", "resource", "principal", "grant")
        for row in rows:
            print_json(dict(zip(members, row, strict=True)) | ({"grant": None} if row[-1] == "-" else {}))
    else:
        print_table(("PERMISSION", "OPERATION", "RESOURCE", "BY THE GRANT TO", "GRANT"), rows)
    return callers.DONE


def resource_of(text: str | None, *, prefixed: bool) -> tuple[ResourceType | None, PatternType, str]:
    """Read a resource: ``cluster``, ``user:alice``, ``topic:*``; None is all resources of a role.

    Raises:
        InvalidRequestError: There is no such type, or a name is missing.
    """
    if text is None:
        if prefixed:
            raise InvalidRequestError("--prefixed needs --resource TYPE:PREFIX")
        return None, PatternType.LITERAL, "*"
    word, colon, name = text.partition(":")
    try:
        kind = ResourceType(word)
    except ValueError:
        raise InvalidRequestError(f"There is no resource type {word!r}; there are: {', '.join(ResourceType)}") from None
    if not colon and (kind is not ResourceType.CLUSTER or prefixed):
        raise InvalidRequestError(f"Give a name with the type: {kind}:NAME, or '{kind}:*' for every name")
    return kind, PatternType.PREFIXED if prefixed else PatternType.LITERAL, name if colon else "*"


def _text(grant: Grant) -> str:
    where = "all clusters" if grant.cluster is None else f"cluster {grant.cluster}"
    return f"{grant.permission.value} {grant.principal} {_right(grant)} on {_resource(grant)} of {where}"


def _right(grant: Grant) -> str:
    return f"role {grant.role}" if grant.role is not None else str(grant.operation)


def _resource(grant: Grant) -> str:
    if grant.resource is None:
        return "all"
    return grant.resource.value if grant.resource is ResourceType.CLUSTER else _pattern(grant.resource, grant)


def _named(right: Right) -> str:
    return right.resource.value if right.resource is ResourceType.CLUSTER else _pattern(right.resource, right)


def _pattern(kind: ResourceType, of: Grant | Right) -> str:
    return f"{kind.value}:{of.name}" + ("... (prefix)" if of.pattern is PatternType.PREFIXED else "")
