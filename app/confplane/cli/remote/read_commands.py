"""The commands that read configs over the API: ``get``, ``effective`` and ``history``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.output import (
    NOT_KEPT,
    TablePrinter,
    author_text,
    echo,
    first,
    is_json,
    note_inexact,
    print_error,
    print_items,
    print_json,
    print_table,
    reason_text,
    sides_of,
    value_text,
)
from confplane.cli.remote.entities import (
    MEMBERS,
    entity_of,
    facets_of,
    gather,
    keys_of,
    note_stale,
    read_entity_values,
)
from confplane.cli.remote.options import (
    READ_CODES,
    AsLines,
    At,
    ClusterName,
    EntityName,
    Key,
    Limit,
    NoPager,
    OptionalEntity,
    ProfileName,
    served,
)
from confplane.cli.remote.selection import EntityReader, EntitySelection
from confplane.cli.remote.session import DONE, FAILED, run
from confplane.cli.times import moment_of
from confplane.domain.entities import EntityType
from confplane.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from confplane.client import Answer, AsyncConfplane
    from confplane.client.types import HistoryItem
    from confplane.domain.entities import Entity


commands = CommandGroup()


@commands.command(
    epilog="Examples:\n\n"
    "    confplane get user=alice\n\n"
    "    confplane get topic=orders --cluster payments --at 2h\n\n"
    "    confplane get --type topic --key retention.ms\n\n"
    "    confplane get --type topic --prefix orders --limit 100\n\n"
    "    confplane get --not-applied\n\n"
    "Exit codes: 0 shown; 1 nothing is set on the entity, an entity of the list can't be read, or the service refused"
    " or did not answer; 2 the arguments or the profile are not valid."
)
def get(
    entity: OptionalEntity = None,
    *,
    kind: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="List entities of this type, or of `user,client-id`.")
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="List entities of this user; '' is the default user.")
    ] = None,
    client_id: Annotated[
        str | None, typer.Option(metavar="NAME", help="List entities of this client-id; '' is the default client-id.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="List entities that set this key.")] = None,
    prefix: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="List entities whose name has this prefix; for a pair, the name of the user."
        ),
    ] = "",
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Maximum number of entities.", show_default="all")
    ] = None,
    not_applied: Annotated[
        bool,
        typer.Option("--not-applied", help="List client configs that clients report as not applied, or as refused."),
    ] = False,
    at: At = None,
    as_json: AsLines = False,
    no_pager: NoPager = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Show the quotas and configs that are set on an entity, or list entities.

    Without ENTITY all entities with quotas or configs are listed, as the options select them. Secrets are shown as
    `(hidden)`, in JSON as null. The JSON of an entity has the ETags that `confplane set` takes.
    """
    if entity is None:
        names = {"user": user, "client-id": client_id}
        raise run(
            profile,
            cluster,
            lambda client: _list(
                client,
                EntitySelection(names, kind, key, prefix, at=at, not_applied=not_applied),
                limit=limit,
                pages=not no_pager,
            ),
        )
    if not_applied or prefix or not all(each is None for each in (kind, user, client_id, key, limit)):
        raise typer.BadParameter(
            "--type, --user, --client-id, --key, --prefix, --limit and --not-applied are for lists. Omit ENTITY."
        )
    raise run(profile, cluster, lambda client: _get(client, entity, at=at))


@commands.command(
    epilog="Examples:\n\n"
    "    confplane effective user=alice,client-id=billing\n\n"
    "    confplane effective topic=orders --key retention.ms\n\n"
    f"{READ_CODES}"
)
@served()
async def effective(
    client: AsyncConfplane,
    entity: EntityName,
    *,
    key: Key = None,
    everything: Annotated[bool, typer.Option("--all", help="Include Kafka's own defaults.")] = False,
) -> None:
    """Show the effective values of an entity, each with its level.

    Levels are entities for quotas and client configs, and Kafka's sources for configs of topics and brokers.
    """
    named = entity_of(entity)
    facets = facets_of(named)
    answers = await gather(client.resources(each).effective(named) for each in facets)
    note_stale(answers)
    found = {facet: answer.body for facet, answer in zip(facets, answers, strict=True)}
    if is_json():
        print_json({"id": named.id} | {facet.value: body for facet, body in found.items()})
        return
    values = [value for facet, body in found.items() for value in body[MEMBERS[facet]]]
    shown = [each for each in values if _is_shown(each, key, everything=everything)]
    if shown:
        print_table(("KEY", "VALUE", "SOURCE"), [(each["key"], _text(each), each["source"]) for each in shown])
    elif key is None:
        defaults = "" if everything else ". --all includes Kafka's own defaults"
        echo(f"No value is set for {named.id} on any level{defaults}", err=True)
    else:
        echo(f"{named.id} has no effective value of {key}", err=True)
    for body in found.values():
        for warning in body["warnings"]:
            echo(f"Warning: {warning}", err=True)
    if named.types == (EntityType.CLIENT_ID,):
        text = "Quotas of the client's user, also of the default user, have precedence: confplane effective"
        echo(f"{text} user=NAME,{named.id}", err=True)


@commands.command(
    epilog="Examples:\n\n"
    "    confplane history user=alice\n\n"
    "    confplane history topic=orders --limit 1 --json\n\n"
    f"{READ_CODES}"
)
def history(
    entity: EntityName,
    *,
    limit: Limit = 20,
    as_json: AsLines = False,
    no_pager: NoPager = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Show the changes of an entity, newest first: who changed which key, from which value to which, and why.

    Changes that were made outside Confplane are marked `(external)`. For the changes of a span of time, use `confplane
    audit --entity ENTITY --since TIME`.
    """
    raise run(profile, cluster, lambda client: _history(client, entity, limit=limit, pages=not no_pager))


async def _get(client: AsyncConfplane, name: str, *, at: str | None) -> int:
    """Print the content of all facets of an entity, and return the exit code."""
    entity = entity_of(name)
    moment = None if at is None else moment_of(at, "--at")
    found = await read_entity_values(client, entity, moment)
    if is_json():
        print_json(
            {"id": entity.id}
            | {facet.value: keys_of(facet, found[facet]) if facet in found else None for facet in facets_of(entity)}
            | {"etags": {facet.value: answer.etag for facet, answer in found.items()}}
            | ({} if moment is None else {"at": {facet.value: answer.body["at"] for facet, answer in found.items()}})
        )
    if not found:
        when = "" if at is None else f" at {at}"
        return print_error(f"Nothing is set on {entity.id} in the cluster {client.cluster}{when}", FAILED)
    note_stale(found.values())
    note_inexact(answer.body["at"] for answer in found.values() if "at" in answer.body)
    if not is_json():
        print_table(("KEY", "VALUE"), [row for facet, answer in found.items() for row in _rows(facet, answer)])
    return DONE


def _rows(facet: FacetName, answer: Answer[Any]) -> list[tuple[str, str]]:
    """Return keys and values. For a past moment, this includes keys whose values the trail does not have."""
    values = keys_of(facet, answer)
    not_kept = [key for key in answer.body.get("at", {}).get("notKept", ()) if key not in values]
    return [(key, value_text(value)) for key, value in values.items()] + [(key, NOT_KEPT) for key in not_kept]


async def _list(client: AsyncConfplane, selection: EntitySelection, *, limit: int | None, pages: bool) -> int:
    """Print the entities with their keys, by id, and return the exit code: 1 if one can't be read.

    If a key is selected, the table shows only this key of each entity.
    """
    reader = EntityReader(client, selection)
    if limit is not None and not selection.prefix:  # with a prefix, pages are filtered here
        reader.page_size = min(limit + 1, reader.page_size)
    has_more = False
    with TablePrinter(("ENTITY", "KEY", "VALUE"), pages=pages, shows_empty=not is_json()) as table:
        async for each in reader.read(*FacetName):
            if has_more := limit is not None and reader.count > limit:
                break
            if is_json():
                print_json({"id": each.id} | {facet.value: values for facet, values in each.facets.items()})
                continue
            for key, value in ((key, value) for values in each.facets.values() for key, value in values.items()):
                if selection.key in {None, key}:
                    table.add((each.id, key, value_text(value)))
    if has_more:
        echo(f"There are more entities; --limit is {limit}", err=True)
    for path in sorted(reader.unreadable):
        echo(f"Can't be read: {path}", err=True)
    return FAILED if reader.unreadable else DONE


_DEFAULT: Final = "DEFAULT_CONFIG"
_LARGEST_PAGE: Final = 1000


def _is_shown(value: Mapping[str, Any], key: str | None, *, everything: bool) -> bool:
    if key is not None:
        return bool(value["key"] == key)
    return everything or value["source"] != _DEFAULT


def _text(value: Mapping[str, Any]) -> str:
    """Return a value as text. Kafka has configs without a value that are not secrets."""
    if value["value"] is None and not value.get("isSensitive"):
        return "(none)"
    return value_text(value["value"])


async def _history(client: AsyncConfplane, name: str, *, limit: int, pages: bool) -> int:
    entity = entity_of(name)
    await print_items(
        first(_changes(client, entity, min(limit, _LARGEST_PAGE)), limit),
        ("TIME", "REVISION", "BY", "KEY", "BEFORE", "AFTER", "REASON", "CHANGE"),
        _change_rows,
        noun="changes",
        empty=f"The trail has no change of {entity.id} in the cluster {client.cluster}",
        pages=pages,
    )
    return DONE


async def _changes(client: AsyncConfplane, entity: Entity, page_size: int) -> AsyncIterator[HistoryItem]:
    """Yield the changes, newest first; a joint change of quotas and client configs once."""
    lists = [aiter(client.resources(facet).history(entity, page_size=page_size)) for facet in facets_of(entity)]
    heads = [await anext(items, None) for items in lists]
    while revisions := [int(head["revision"]) for head in heads if head is not None]:
        by_id: dict[str, HistoryItem] = {}
        for place, items in enumerate(lists):
            while (head := heads[place]) is not None and int(head["revision"]) == max(revisions):
                known = by_id.setdefault(head["changeId"], head)
                if known is not head:
                    known["changes"] += head["changes"]
                heads[place] = await anext(items, None)
        for change_id in sorted(by_id, reverse=True):
            yield by_id[change_id]


def _change_rows(change: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row for each key; the first row also has the facts of the change as a whole."""
    shown = [sides_of(each) for each in change["changes"]]
    if not shown:
        shown = [("(moved to another layout)" if change.get("moved") else "(no value changed)", "", "")]
    first = (change["time"], change["revision"], author_text(change), *shown[0])
    beside = (reason_text(change), change["changeId"])
    return [(*first, *beside), *(("", "", "", *each, "", "") for each in shown[1:])]
