"""``confplane grants``: grants over the API. The first grant can be created on Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.options import Local, SettingsFile, id_argument, is_local, load_settings
from confplane.cli.output import echo, is_json, print_items, print_json, print_result, print_table
from confplane.cli.remote.options import READ_CODES, WRITE_CODES, AsJson, ProfileName, Reason, Ticket, served, terms
from confplane.cli.remote.session import DONE, run
from confplane.domain.access.grants import Grant
from confplane.domain.access.operations import Operation, PatternType, Permission, ResourceType, Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.client import AsyncConfplane

commands = CommandGroup()
grants = commands.subgroup("grants")


@grants.command(
    "list",
    epilog="Examples:\n\n"
    "    confplane grants list\n\n"
    f"    confplane grants list --principal Group:payments --json\n\n{READ_CODES}",
)
@served(as_lines=True, in_cluster=False)
async def list_grants(
    client: AsyncConfplane,
    principal: Annotated[
        str | None, typer.Option(metavar="PRINCIPAL", help="Only grants to this user or group.")
    ] = None,
    *,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only grants for this cluster, without those for all clusters.")
    ] = None,
) -> None:
    """List grants, oldest first."""
    denies_more = False

    def rows(grant: Mapping[str, Any]) -> list[list[str]]:
        nonlocal denies_more
        also = ", ".join(sorted(_also_denied(grant)))
        denies_more = denies_more or bool(also)
        members = [grant[member] or "all" for member in ("id", "principal", "permission", "cluster")]
        return [[*members, _right(grant), _resource(grant) or "all", also or "-", grant["note"] or "-"]]

    await print_items(
        aiter(client.grants.list(principal=principal, cluster=cluster, page_size=1000)),
        ("ID", "PRINCIPAL", "PERMISSION", "CLUSTER", "RIGHT", "RESOURCE", "ALSO DENIES", "NOTE"),
        rows,
        noun="grants",
        empty="There are no such grants that you may see.",
    )
    if denies_more:
        echo(
            "ALSO DENIES: earlier releases left these operations in place. They are denied now, unless a separate"
            " grant allows them (docs/access.md#denies).",
            err=True,
        )


@grants.command(
    "show",
    epilog="Examples:\n\n"
    "    confplane grants show --principal User:olga --group Group:payments --cluster payments\n\n"
    f"    confplane grants show --group Group:payments --cluster payments\n\n{READ_CODES}",
)
@served(as_lines=True)
async def show_grants(
    client: AsyncConfplane,
    *,
    principal: Annotated[str | None, typer.Option(metavar="User:NAME", help="The user.")] = None,
    group: Annotated[
        str | None, typer.Option(metavar="Group:NAME", help="A group, alone or together with a member.")
    ] = None,
) -> None:
    """Show the rights of a user or group in a cluster, and the grants that give or deny them. Denies come first."""
    items = (await client.access.get(principal=principal, group=group)).body["items"]
    if is_json():
        for item in items:
            print_json(item)
        return
    rows = [
        (
            "allow" if item["allowed"] else "deny",
            right["operation"],
            _resource({**right}),
            item["principal"],
            "-" if item["grant"] is None else item["grant"]["id"],
        )
        for item in items
        for right in item["rights"]
    ]
    print_table(("PERMISSION", "OPERATION", "RESOURCE", "GRANTED TO", "GRANT"), rows)


@grants.command(
    "create",
    epilog="Examples:\n\n"
    "    confplane grants create --principal Group:payments --operation ALTER_CONFIGS --resource user:payments-"
    " --prefixed\n\n"
    "    confplane grants create --principal User:olga --role operator --cluster payments --reason CHG-1234\n\n"
    "    confplane grants create --principal 'User:*' --deny --operation ALTER_CONFIGS --resource topic:ledger\n\n"
    f"{WRITE_CODES}",
)
def create_grant(
    principal: Annotated[
        str, typer.Option(metavar="PRINCIPAL", help="User:NAME, Group:NAME, or User:* for every caller.")
    ],
    *,
    operation: Annotated[
        Operation | None, typer.Option(help="The operation. The grant gives the operations that it includes too.")
    ] = None,
    role: Annotated[Role | None, typer.Option(help="A bundle of operations, instead of one operation.")] = None,
    resource: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE:NAME",
            help="The resource: cluster, user:NAME, topic:NAME, and so on. TYPE:* means every name, but not the default"
            " entity. Without this option, a role is granted on all of its resources.",
        ),
    ] = None,
    prefixed: Annotated[bool, typer.Option("--prefixed", help="NAME is a prefix of names.")] = False,
    deny: Annotated[bool, typer.Option("--deny", help="Deny. A deny takes precedence over every allow.")] = False,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="The cluster.", show_default="all clusters")
    ] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="A note for people.")] = None,
    reason: Reason = None,
    ticket: Ticket = None,
    as_json: AsJson = False,
    profile: ProfileName = None,
    local: Local = False,
    settings_file: SettingsFile = None,
) -> None:
    """Grant an operation or a role to a user, to a group or to everybody.

    A grant that exists already is not created again. Every process applies a new grant within two seconds.
    """
    kind, pattern, name = _resource_of(resource, prefixed=prefixed)
    permission = Permission.DENY if deny else Permission.ALLOW
    if is_local(local, settings_file, profile):
        from confplane.cli import access, callers
        from confplane.services.access_admin.grants import NewGrant

        wanted = NewGrant(principal, permission, cluster, operation, role, kind, pattern, name, note)
        settings, caller = load_settings(settings_file), callers.caller(reason, ticket)

        async def stored() -> int:
            return _created(*await access.create_grant(settings, wanted, caller))

        raise typer.Exit(callers.run(stored(), "Not created"))
    body: Any = {
        "principal": principal,
        "permission": permission.value,
        "cluster": cluster,
        "operation": operation,
        "role": role,
        "resourceType": kind,
        "patternType": pattern,
        "name": name,
        "note": note,
    }

    async def work(client: AsyncConfplane) -> int:
        answer = await client.grants.create(body, **terms(reason, ticket))
        return _created(answer.body, answer.status == _CREATED)

    raise run(profile, None, work)


@grants.command(
    "remove",
    epilog="Example:\n\n"
    f'    confplane grants remove 019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10 --reason "left the team"\n\n{WRITE_CODES}',
)
@served(in_cluster=False)
async def remove_grant(
    client: AsyncConfplane,
    grant_id: Annotated[UUID, id_argument("grant")],
    *,
    reason: Reason = None,
    ticket: Ticket = None,
) -> None:
    """Remove a grant. Every process stops applying it within two seconds."""
    removed = (await client.grants.delete(str(grant_id), **terms(reason, ticket))).body
    print_result(removed, f"Removed the grant {grant_id}: {_text(removed)}", err=False)


_CREATED = 201


def _created(grant: Mapping[str, Any], is_new: bool) -> int:  # noqa: FBT001 - private
    said = f"{'Created' if is_new else 'There is already'} the grant {grant['id']}: {_text(grant)}"
    print_result(grant, said, err=False)
    return DONE


def _resource_of(text: str | None, *, prefixed: bool) -> tuple[ResourceType | None, PatternType, str]:
    """Read a resource: ``cluster``, ``user:alice``, ``topic:*``; None is all resources of a role."""
    if text is None:
        if prefixed:
            raise typer.BadParameter("--prefixed needs --resource TYPE:PREFIX.", param_hint="--resource")
        return None, PatternType.LITERAL, "*"
    word, colon, name = text.partition(":")
    if word not in set(ResourceType):
        written = text.replace("=", ":", 1)
        hint = f" Did you mean {written}?" if written.partition(":")[0] in set(ResourceType) else ""
        raise typer.BadParameter(
            f"Unknown resource type {word!r}. Available: {', '.join(ResourceType)}.{hint}", param_hint="--resource"
        )
    kind = ResourceType(word)
    if not colon and (kind is not ResourceType.CLUSTER or prefixed):
        raise typer.BadParameter(
            f"Give a name with the type: {word}:NAME, or '{word}:*' for every name.", param_hint="--resource"
        )
    if name.endswith("*") and name != "*":
        example = f"{word}:{name.rstrip('*')} --prefixed"
        echo(f"Warning: the * of {name} is part of the name. For a prefix of names: --resource {example}", err=True)
    return kind, PatternType.PREFIXED if prefixed else PatternType.LITERAL, name if colon else "*"


def _also_denied(grant: Mapping[str, Any]) -> frozenset[Operation]:
    """Return the operations that a deny takes away in addition; empty if this release does not know a part of it."""
    try:
        return Grant(
            UUID(grant["id"]),
            grant["principal"],
            Permission(grant["permission"]),
            grant["cluster"],
            grant["operation"] and Operation(grant["operation"]),
            grant["role"] and Role(grant["role"]),
            grant["resourceType"] and ResourceType(grant["resourceType"]),
            PatternType(grant["patternType"] or PatternType.LITERAL),
            grant["name"] or "*",
        ).also_denies()
    except ValueError:
        return frozenset()


def _text(grant: Mapping[str, Any]) -> str:
    where = "all clusters" if grant["cluster"] is None else f"cluster {grant['cluster']}"
    resource = _resource(grant) or "all resources"
    return f"{grant['permission']} {grant['principal']} {_right(grant)} on {resource} of {where}"


def _right(grant: Mapping[str, Any]) -> str:
    return grant["operation"] or f"role {grant['role']}"


def _resource(of: Mapping[str, Any]) -> str:
    """Return a resource as ``--resource`` names it; '' for all resources of a role."""
    if of["resourceType"] in {None, ResourceType.CLUSTER}:
        return of["resourceType"] or ""
    return f"{of['resourceType']}:{of['name']}" + ("... (prefix)" if of["patternType"] == "prefixed" else "")
