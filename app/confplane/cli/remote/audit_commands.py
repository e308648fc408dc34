"""``confplane audit``: search the trail or the refused attempts, or show one change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.output import (
    ABSENT,
    author_text,
    echo,
    first,
    is_json,
    print_items,
    print_json,
    print_table,
    reason_text,
    value_text,
)
from confplane.cli.remote.entities import entity_of
from confplane.cli.remote.options import READ_CODES, AsLines, ClusterName, Limit, NoPager, ProfileName, Since, Until
from confplane.cli.remote.session import DONE, run
from confplane.cli.times import time_of
from confplane.domain.access.identities import untyped_hint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confplane.client import AsyncConfplane
    from confplane.client.types import AuditedRefusal

_LARGEST_PAGE: Final = 1000
_CLUSTER: Final = "cluster"
"""The entity of freezes, thaws and layouts."""


commands = CommandGroup()


@commands.command(
    epilog="Examples:\n\n"
    "    confplane audit --entity user=alice --since 1d\n\n"
    "    confplane audit --principal User:olga --outcome rejected --json\n\n"
    "    confplane audit --refused --since 1d\n\n"
    "    confplane audit 019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10\n\n"
    f"{READ_CODES}"
)
def audit(
    change: Annotated[
        str | None, typer.Argument(metavar="CHANGE", help="The id of one change.", show_default="a search")
    ] = None,
    *,
    entity: Annotated[
        str | None,
        typer.Option(metavar="ENTITY", help="Changes of this entity; `cluster` for freezes, thaws and moves."),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Changes that altered this key.")] = None,
    principal: Annotated[str | None, typer.Option(metavar="PRINCIPAL", help="Changes by this principal.")] = None,
    since: Since = None,
    until: Until = None,
    outcome: Annotated[
        str | None, typer.Option(metavar="OUTCOME", help="Changes that are committed, rejected or open.")
    ] = None,
    refused: Annotated[
        bool,
        typer.Option("--refused", help="Search attempts that were refused before a change began, instead of changes."),
    ] = False,
    limit: Limit = 20,
    as_json: AsLines = False,
    no_pager: NoPager = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Search the trail of all changes, newest first, or show one change with its values."""
    wanted = (entity, key, principal, since, until, outcome)
    if change is not None:
        if refused or any(each is not None for each in wanted):
            raise typer.BadParameter("CHANGE shows one change. Omit the options of a search.")
        raise run(profile, cluster, lambda client: _show(client, change))
    if refused and outcome is not None:
        raise typer.BadParameter("Refused attempts have no outcome. Omit --outcome or --refused.")
    raise run(
        profile,
        cluster,
        lambda client: _search(client, _filters(*wanted), refused=refused, limit=limit, pages=not no_pager),
    )


def _filters(
    entity: str | None,
    key: str | None,
    principal: str | None,
    since: str | None,
    until: str | None,
    outcome: str | None,
) -> dict[str, Any]:
    """Return the filters of a search in the client library's form; None does not filter.

    Raises:
        InvalidRequestError: No entity can have the name, or a time is not valid.
    """
    return {
        "entity": entity if entity is None or entity == _CLUSTER else entity_of(entity).id,
        "key": key,
        "principal": principal,
        "since": None if since is None else time_of(since, "--since"),
        "until": None if until is None else time_of(until, "--until"),
        **({} if outcome is None else {"outcome": outcome}),
    }


async def _search(client: AsyncConfplane, filters: dict[str, Any], *, refused: bool, limit: int, pages: bool) -> int:
    filters["page_size"] = min(limit, _LARGEST_PAGE)
    if refused:
        await print_items(
            first(aiter(client.audit.refused(**filters)), limit),
            ("TIME", "BY", "OPERATION", "ENTITY", "KEYS", "PROBLEM", "COUNT", "REQUEST"),
            _refused_rows,
            noun="attempts",
            empty=f"No such refused attempt is recorded in the cluster {client.cluster}",
            pages=pages,
        )
    else:
        await print_items(
            first(aiter(client.audit.search(**filters)), limit),
            ("TIME", "REVISION", "BY", "ENTITY", "KEYS", "OUTCOME", "REASON", "CHANGE"),
            _rows,
            noun="changes",
            empty=f"The trail has no such change in the cluster {client.cluster}{untyped_hint(filters['principal'])}",
            pages=pages,
        )
    return DONE


async def _show(client: AsyncConfplane, change_id: str) -> int:
    """Print one change, and return the exit code."""
    item = (await client.audit.get(change_id)).body
    if is_json():
        print_json(item)
        return DONE
    facts = {
        "change": item["changeId"],
        "time": _time(item),
        "revision": item["revision"],
        "by": author_text(item),
        "on behalf of": item["onBehalfOf"],
        "from": item["source"],
        "request": item["requestId"],
        "reason": item["reason"],
        "ticket": item["ticket"],
        "outcome": item["outcome"],
        "error": item["errorMessage"],
    }
    print_table(("CHANGE", ""), [(name, str(value)) for name, value in facts.items() if value is not None])
    echo()
    print_entities(item)
    return DONE


def print_entities(change: Mapping[str, Any]) -> None:
    """Print the keys of a change with their values before and after."""
    rows = [row for entity in change["entities"] for row in _differences(entity)]
    print_table(("ENTITY", "KEY", "BEFORE", "AFTER"), rows)


def _refused_rows(item: AuditedRefusal) -> Iterator[tuple[str, ...]]:
    yield (
        item["time"],
        item["principal"],
        item["operation"],
        item["entity"] or "",
        ", ".join(item["keys"]),
        item["problem"].removeprefix("/problems/"),
        str(item["count"]),
        item["requestId"] or "",
    )


def _rows(item: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each entity; the first row also has the facts of the change as a whole."""
    beside = (item["outcome"], reason_text(item), item["changeId"])
    first = (_time(item), item["revision"] or "", author_text(item))
    for entity in item["entities"]:
        yield (*first, entity["id"], ", ".join(entity["keys"]), *beside)
        first, beside = ("", "", ""), ("", "", "")


def _time(item: Mapping[str, Any]) -> str:
    time: str = item["committedAt"] or item["createdAt"]
    return time


def _differences(entity: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the keys that a change altered; whole contents are in the JSON."""
    secret = {op["key"] for op in entity["ops"] if op.get("secret")}
    for key in entity["keys"]:
        sides = [entity[side].get(key, ABSENT) for side in ("before", "after")]
        if entity["id"] == _CLUSTER:  # a state that the cluster does not have is null
            sides = [ABSENT if side is None else side for side in sides]
        before, after = [value_text(None if key in secret else side) for side in sides]
        yield entity["id"], key, before, after
