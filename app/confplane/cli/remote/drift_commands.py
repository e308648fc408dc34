"""``confplane drift``: what differs in a Kafka cluster without ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.output import (
    ABSENT,
    HIDDEN,
    echo,
    is_json,
    print_items,
    print_json,
    print_table,
    sides_of,
    value_text,
)
from confplane.cli.remote import completion
from confplane.cli.remote.changes import report_bypass
from confplane.cli.remote.entities import entity_of
from confplane.cli.remote.options import (
    READ_CODES,
    WRITE_CODES,
    AsLines,
    BreakGlass,
    ClusterName,
    NoPager,
    ProfileName,
    Reason,
    Ticket,
    ValidateOnly,
    served,
    terms,
)
from confplane.cli.remote.session import DONE, FAILED, refusal_texts, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confplane.client import AsyncConfplane


commands = CommandGroup()
drift = commands.subgroup("drift")

_Entities = Annotated[
    list[str], typer.Argument(metavar="ENTITY...", help="The entities.", autocompletion=completion.entity_ids)
]
_Keys = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="KEY", help="This key alone; may be repeated.", show_default="all that differ"),
]


@drift.command("list", epilog=f"Example:\n\n    confplane drift list --cluster payments\n\n{READ_CODES}")
def list_drift(
    *,
    as_json: AsLines = False,
    no_pager: NoPager = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """List the keys whose values in the Kafka cluster differ, with both values, the author and the time of the change.

    A key is `pending` until its change is delivered, `refused` if the cluster refused it, and `extra` if it was only
    set outside Confplane.
    """
    raise run(profile, cluster, lambda client: _list_drift(client, pages=not no_pager))


@drift.command(
    epilog="Examples:\n\n"
    "    confplane drift adopt user=alice --reason 'the operator is right'\n\n"
    "    confplane drift adopt user=alice user=bob --key producer_byte_rate --validate-only\n\n"
    f"{WRITE_CODES}"
)
@served()
async def adopt(
    client: AsyncConfplane,
    entities: _Entities,
    *,
    key: _Keys = None,
    validate_only: ValidateOnly = False,
    reason: Reason = None,
    ticket: Ticket = None,
    break_glass: BreakGlass = None,
) -> int:
    """Set each key that differs to the value that the Kafka cluster has. Each entity is a separate change."""
    names = [entity_of(each) for each in entities]
    given = {"keys": key, "validate_only": validate_only, "break_glass": break_glass, **terms(reason, ticket)}
    answer = await client.drift.adopt(names, **given)
    results = answer.body["results"]
    if is_json():
        print_json(answer.body)
    else:
        rows = [(each["id"], *sides_of(change)) for each in results for change in each["diff"]]
        if rows:
            print_table(("ENTITY", "KEY", "BEFORE", "AFTER"), rows)
        elif not answer.body["failed"]:
            echo("Nothing differs", err=True)
        for each in results:
            for text in refusal_texts(each) if each["errorCode"] else ():
                echo(f"{each['id']}: {text}", err=True)
    if any(each["diff"] for each in results):
        report_bypass(break_glass, results)
    return FAILED if answer.body["failed"] else DONE


@drift.command(
    epilog="Example:\n\n    confplane drift reapply user=alice --cluster payments\n\n"
    "Exit codes: 0 done; 1 refused, or the service did not answer; 2 the arguments or the profile are not valid."
)
@served()
async def reapply(
    client: AsyncConfplane, entities: _Entities, *, key: _Keys = None, validate_only: ValidateOnly = False
) -> None:
    """Send changes that the Kafka cluster refused, and contested keys, to the cluster again."""
    names = [entity_of(each) for each in entities]
    answer = await client.drift.reapply(names, keys=key, validate_only=validate_only)
    if is_json():
        print_json(answer.body)
    elif rows := [(each["id"], each_key) for each in answer.body["results"] for each_key in each["keys"]]:
        print_table(("ENTITY", "KEY"), rows)
    else:
        echo("These entities have no refused changes and no contested keys", err=True)


_UNSEEN: Final = "(not seen)"
"""Printed instead of a value of a cluster that did not answer."""


async def _list_drift(client: AsyncConfplane, *, pages: bool) -> int:
    await print_items(
        aiter(client.drift.list(page_size=1000)),
        ("ENTITY", "KEY", "STATE", "OURS", "THEIRS", "SINCE", "BY", "REASON"),
        _rows,
        noun="entities",
        empty=f"Nothing differs in the Kafka cluster of {client.cluster}",
        pages=pages,
    )
    return DONE


def _rows(item: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for key in item["keys"]:
        theirs = _UNSEEN if item["observedAt"] is None else _value(key, "theirs")
        refused = key.get("refusedMessage") or (item["refusedMessage"] if key["state"] == "refused" else None) or ""
        yield (
            item["id"],
            key["key"],
            key["state"],
            _value(key, "ours"),
            theirs,
            key["since"] or "",
            key["principal"] or "",
            refused,
        )


def _value(key: Mapping[str, Any], side: str) -> str:
    if key["secret"]:
        return HIDDEN
    return ABSENT if key[side] is None else value_text(key[side])
