"""Mismatches of many kinds within the trail, and between trail, recorder and ZooKeeper, one in each entity."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from tests.rollups.tampered import MADE_UP

if TYPE_CHECKING:
    from tests.rollups.tampered import Cluster, Row


def a_key(row: Row) -> str:
    return min(str(key) for key, value in row["config"].items() if value is not None)


def has_value(_: list[Row], znode: Row) -> bool:
    return any(value is not None for value in znode["config"].values())


def value_by_hand(cluster: Cluster) -> None:
    _, znode = cluster.take(has_value)
    key = a_key(znode)
    znode["config"] = {**znode["config"], key: "31"}
    cluster.expect(znode["entity_id"], "content", key)


def removed_by_hand(cluster: Cluster) -> None:
    _, znode = cluster.take(has_value)
    key = a_key(znode)
    znode["config"] = {name: value for name, value in znode["config"].items() if name != key}
    znode["version"] += 1
    cluster.expect(znode["entity_id"], "content", key)


def added_by_hand(cluster: Cluster) -> None:
    _, znode = cluster.take(lambda _history, _znode: True)
    znode["config"] = {**znode["config"], MADE_UP: None}
    znode["version"] += 3
    cluster.expect(znode["entity_id"], "content", MADE_UP)


def deleted_by_hand(cluster: Cluster) -> None:
    _, znode = cluster.take(lambda _history, znode: znode["config"])
    del cluster.znodes[znode["entity_id"]]
    cluster.expect(znode["entity_id"], "no_znode")


def created_by_hand(cluster: Cluster) -> None:
    number = len(cluster.planted)
    _, like = cluster.take(lambda _history, znode: znode["config"])
    entity_id = f"topic=by-hand-{number}"
    cluster.znodes[entity_id] = {**like, "entity_id": entity_id, "path": f"/config/topics/by-hand-{number}"}
    cluster.expect(entity_id, "no_trail")


def row_between_withheld(cluster: Cluster) -> None:
    """One whose change shows in what the next one read, and can't be told from what came before it."""

    def wanted(history: list[Row], _znode: Row) -> bool:
        one, withheld, following = history[-3:]
        told = {**one["after"], **withheld["after"]}
        return (
            all(row["kind"] == "change" and row["version"] is not None for row in (one, withheld, following))
            and (following["version_read"], following["czxid_read"]) == (withheld["version"], withheld["czxid_read"])
            and withheld["version_read"] == one["version"]
            and None not in told.values()
            and one["after"] != following["before"]
        )

    history, znode = cluster.take(wanted, changes=3)
    cluster.changes.remove(history[-2])
    cluster.expect(znode["entity_id"], "gap")


def last_row_withheld(cluster: Cluster) -> None:
    """The recorder's state has a content then that no row explains."""

    def wanted(history: list[Row], znode: Row) -> bool:
        return (
            history[-2]["version"] is not None
            and history[-2]["after"] != znode["config"]
            and None not in {**history[-2]["after"], **znode["config"]}.values()
        )

    history, znode = cluster.take(wanted, changes=2)
    cluster.changes.remove(history[-1])
    cluster.expect(znode["entity_id"], "state")


def only_row_withheld(cluster: Cluster) -> None:
    """The recorder's state is of a znode then that came while it recorded, and no row has it come."""
    history, znode = cluster.take(is_created_once)
    cluster.changes.remove(history[0])
    cluster.expect(znode["entity_id"], "state")


def is_created_once(history: list[Row], znode: Row) -> bool:
    return len(history) == 1 and history[0]["version_read"] is None and bool(znode["config"])


def joined(history: list[Row]) -> int | None:
    """The number of a row in the middle that was made on what the row before it left, as was the row after it."""
    for number in range(1, len(history) - 1):
        three = history[number - 1 : number + 2]
        if all(has_left(one, next_one) for one, next_one in itertools.pairwise(three)):
            return number
    return None


def has_left(one: Row, following: Row) -> bool:
    """Return True if a change was made on exactly the version that another one left, with a value that both tell."""
    created = one["revision"] if one["version_read"] is None else one["czxid_read"]
    return (
        one["writes"] is None
        and one["version"] is not None
        and (one["version"], created) == (following["version_read"], following["czxid_read"])
        and any(value is not None for value in one["after"].values())
    )


def middle_row_left_another_value(cluster: Cluster) -> None:
    history, znode = cluster.take(lambda history, _znode: joined(history), changes=3)
    row = history[joined(history) or 0]
    key = min(str(key) for key, value in row["after"].items() if value is not None)
    row["after"] = {**row["after"], key: "31"}
    cluster.expect(znode["entity_id"], "altered", key)


def middle_row_found_a_key_more(cluster: Cluster) -> None:
    history, znode = cluster.take(lambda history, _znode: joined(history), changes=3)
    row = history[joined(history) or 0]
    row["before"] = {**row["before"], MADE_UP: "31"}
    cluster.expect(znode["entity_id"], "altered", MADE_UP)


def creation_found_a_value(cluster: Cluster) -> None:
    history, znode = cluster.take(is_created_once)
    history[0]["before"] = {MADE_UP: "31"}
    cluster.expect(znode["entity_id"], "altered", MADE_UP)


def row_with_another_value(cluster: Cluster) -> None:
    history, znode = cluster.take(has_value)
    key = a_key(znode)
    history[-1]["after"] = {**history[-1]["after"], key: "31"}
    cluster.expect(znode["entity_id"], "content", key)


def written_as_it_was(cluster: Cluster) -> None:
    _, znode = cluster.take(lambda _history, _znode: True)
    znode["version"] += 1
    cluster.expect(znode["entity_id"], "version")


def recreated_unchanged(cluster: Cluster) -> None:
    _, znode = cluster.take(lambda _history, znode: znode["czxid"] != znode["mzxid"])
    znode["czxid"] = znode["mzxid"]
    cluster.expect(znode["entity_id"], "version")


def back_after_its_deletion(cluster: Cluster) -> None:
    """By hand, with the content that it had."""
    last = cluster.take_deleted()[-1]
    tree = min(row["tree"] for row in cluster.znodes.values() if str(last["path"]).startswith(f"{row['tree']}/"))
    like = next(row for row in cluster.znodes.values() if row["tree"] == tree)
    entity_id, revision = last["entity_id"], last["revision"] + 1
    cluster.znodes[entity_id] = {
        **like, "entity_id": entity_id, "path": last["path"], "config": last["before"], "version": 0,
        "czxid": revision, "mzxid": revision,
    }  # fmt: skip
    cluster.expect(entity_id, "no_trail")


def first_row_withheld(cluster: Cluster) -> None:
    """The next change was made on a znode that came after the trail began, and no row has it come."""

    def wanted(history: list[Row], _znode: Row) -> bool:
        first, following = history[:2]
        return (
            first["version_read"] is None
            and first["version"] is not None
            and first["revision"] > cluster.trail.begin
            and (following["version_read"], following["czxid_read"]) == (first["version"], first["revision"])
            and following["before"] == first["after"] != {}
        )

    history, znode = cluster.take(wanted, changes=2)
    cluster.changes.remove(history[0])
    cluster.expect(znode["entity_id"], "gap")


def row_of_others_withheld(cluster: Cluster) -> None:
    """Another writer wrote, the recorder moved its state on, and its row was lost."""
    _, znode = cluster.take(has_value)
    later = {"version": znode["version"] + 1, "mzxid": cluster.trail.zxid + 1}
    config = {**znode["config"], MADE_UP: "7"}
    cluster.state_of(znode).update(later, content=config)
    znode.update(later, config=config)
    cluster.expect(znode["entity_id"], "state")


def change_taken_back_by_a_restore(cluster: Cluster) -> None:
    """The last change is above all revisions of ZooKeeper, and the znode is as the change before left it."""

    def wanted(history: list[Row], _znode: Row) -> bool:
        one, last = history[-2:]
        return (
            one["version"] is not None
            and (last["version_read"], last["before"]) == (one["version"], one["after"])
            and last["czxid_read"] is not None
        )

    history, znode = cluster.take(wanted, changes=2)
    one, last = history[-2:]
    last["revision"] += 2**40
    cluster.state_of(znode)["mzxid"] = last["revision"]
    znode.update(config=one["after"], version=one["version"], czxid=last["czxid_read"], mzxid=one["revision"])
    cluster.expect(znode["entity_id"], "rewound")


PLANTS: Final = {
    value_by_hand: 4,
    removed_by_hand: 3,
    added_by_hand: 3,
    deleted_by_hand: 3,
    created_by_hand: 3,
    row_between_withheld: 4,
    last_row_withheld: 3,
    only_row_withheld: 3,
    middle_row_left_another_value: 4,
    middle_row_found_a_key_more: 3,
    creation_found_a_value: 2,
    row_with_another_value: 3,
    written_as_it_was: 2,
    recreated_unchanged: 2,
    back_after_its_deletion: 3,
    first_row_withheld: 2,
    row_of_others_withheld: 2,
    change_taken_back_by_a_restore: 3,
}
