"""``confplane grants``: create, list, remove and show grants, on Postgres directly."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import typer

from confplane.cli import callers
from confplane.cli.columns import columns
from confplane.domain.access.operations import PatternType, ResourceType
from confplane.domain.errors import InvalidRequestError
from confplane.services.access_admin.overview import own_rights, rights_of
from confplane.services.access_admin.pagination import read_all
from confplane.services.access_admin.views import grant_view
from confplane.services.etags import Precondition
from confplane.wiring import open_access

if TYPE_CHECKING:
    from uuid import UUID

    from confplane.domain.access.grants import Grant
    from confplane.services.access_admin.grants import NewGrant
    from confplane.services.access_admin.overview import Right
    from confplane.services.changes.callers import Caller
    from confplane.settings import Settings


async def create(settings: Settings, wanted: NewGrant, caller: Caller) -> int:
    """Create a grant, and return the exit code."""
    async with open_access(settings) as services:
        stored, is_new = await services.grants.create(wanted, caller)
    done = "Created" if is_new else "There is already"
    typer.echo(f"{done} the grant {stored.grant.id}: {_text(stored.grant)}")
    return callers.DONE


async def list_grants(
    settings: Settings, principal: str | None, cluster: str | None, *, as_json: bool, caller: Caller
) -> int:
    """Print grants, and return the exit code."""
    async with open_access(settings) as services:
        found = await read_all(partial(services.grants.page, principal, cluster, caller.access))
    if as_json:
        for stored in found:
            typer.echo(json.dumps(grant_view(stored), ensure_ascii=False))
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
        typer.echo(columns(heads, rows))
        if any(each.grant.also_denies() for each in found):
            typer.echo(
                "ALSO DENIES: earlier releases left these operations in place. They are denied now, unless a separate"
                " grant allows them (docs/access.md#denies).",
                err=True,
            )
    return callers.DONE


async def remove(settings: Settings, grant_id: UUID, caller: Caller) -> int:
    """Remove a grant, and return the exit code."""
    async with open_access(settings) as services:
        stored = await services.grants.remove(grant_id, Precondition(), caller)
    typer.echo(f"Removed the grant {grant_id}: {_text(stored.grant)}")
    return callers.DONE


async def show(settings: Settings, principal: str | None, group: str | None, cluster: str, caller: Caller) -> int:
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
    typer.echo(columns(("PERMISSION", "OPERATION", "RESOURCE", "BY THE GRANT TO", "GRANT"), rows))
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
