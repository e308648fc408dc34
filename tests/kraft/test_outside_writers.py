"""Writers outside, in a cluster of three nodes: all their writes are in the trail, checked against the metadata log.

One process polls the cluster; in the long tests a second one, with a trail and a tree of its own, follows the log.
Meanwhile each is killed and started again, and so is the active controller.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.kraft.outside.log import log_up_to
from tests.kraft.outside.side import Side
from tests.kraft.outside.trail_check import check_trail, meanings
from tests.kraft.outside.writers import BEYOND, UNSHOWN, Writers
from tests.kraft.test_adopting_faults import active
from tests.support import tools
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.kraft.outside.log import Mark
    from tests.support.kraft import KraftCluster

pytestmark = pytest.mark.proof


@pytest.mark.timeout(600)
def test_every_external_write_is_in_the_trail(
    quorum: KraftCluster, kraft_class_path: str, zookeeper: ZooKeeper, postgres: Postgres, tmp_path: Path
) -> None:
    outside_writers(quorum, kraft_class_path, zookeeper, postgres, tmp_path, seed=1, seconds=5.0, follow=False)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [2, 3])
def test_every_external_write_of_five_minutes_is_in_the_trail(
    quorum: KraftCluster, kraft_class_path: str, zookeeper: ZooKeeper, postgres: Postgres, tmp_path: Path, seed: int
) -> None:
    outside_writers(quorum, kraft_class_path, zookeeper, postgres, tmp_path, seed=seed, seconds=300.0, follow=True)


def outside_writers(
    quorum: KraftCluster,
    class_path: str,
    zookeeper: ZooKeeper,
    postgres: Postgres,
    directory: Path,
    *,
    seed: int,
    seconds: float,
    follow: bool,
) -> None:
    """Write for a while, and check the result."""
    settings = {"bootstrap": quorum.bootstrap}
    controllers = [node.controller for node in quorum.controllers]
    outside = Writers(
        directory,
        class_path=class_path,
        tools_class_path=tools.obtain(tools.kafka_class_path).read_text(),
        bootstrap=quorum.bootstrap,
        brokers=[node.node_id for node in quorum.brokers],
        seed=seed,
    )
    with ExitStack() as undo, outside as writers:
        sides = []
        modes = {"looks": settings, **({"follows": {**settings, "controllers": controllers}} if follow else {})}
        for name, kafka in modes.items():
            side = Side(name, directory / name, zookeeper=zookeeper, postgres=postgres, kafka=kafka)
            undo.callback(side.end)
            sides.append(side)
        following = sides[-1] if follow else None
        writers.first()
        for side in sides:
            side.begin()
        begun = None if following is None else wait_for(following.log_offset, why="the log is not followed")
        writers.start()
        _disturb(quorum, sides, seconds)
        writers.stop()
        marked = writers.mark()
        for side in sides:
            wait_for(side.poll, why=f"{side.name}: no look")
            wait_for(partial(_marked, side, marked), why=f"{side.name}: no last write")
        log = log_up_to(marked, quorum, class_path, beyond=BEYOND, unshown=UNSHOWN)
        if following is not None:
            wait_for(partial(_followed, following, log[-1].offset), why="the log is not followed to its end")
        trees = {entity for side in sides for entity in side.tree()}
        described = {entity: meanings(config) for entity, config in writers.described(trees).items()}
        for side in sides:
            tree = side.tree()
            behind = begun if side is following and begun is not None else float("inf")
            found = check_trail(log, side.rows(), tree, every_write_after=behind)
            assert not found.faults, "\n".join([side.name, *found.faults])
            assert {entity: meanings(config) for entity, config in tree.items()} == described, side.name
            assert not [value for value in UNSHOWN.values() if value in side.said()]
        assert (found.exact if follow else found.seen) > 0, found


def _marked(side: Side, mark: Mark) -> bool:
    return meanings(side.tree().get(mark.entity, {})) == meanings({mark.key: mark.value})


def _followed(side: Side, offset: int) -> bool:
    return (side.log_offset() or 0) >= offset


def _disturb(quorum: KraftCluster, sides: list[Side], seconds: float) -> None:
    """Kill the observers and the active controller, and start them again, for a while."""
    end = time.monotonic() + seconds
    round_s = min(seconds, 60.0)
    while time.monotonic() < end:
        begun = time.monotonic()
        _until(begun + 0.15 * round_s)
        sides[0].kill()
        _until(begun + 0.3 * round_s)
        sides[-1].kill()
        _until(begun + 0.5 * round_s)
        killed = asyncio.run(active(quorum))
        killed.kill()
        time.sleep(3.0)
        killed.start()
        _until(begun + 0.85 * round_s)
        for side in sides:
            side.kill()
        _until(begun + round_s)


def _until(end: float) -> None:
    time.sleep(max(0.0, end - time.monotonic()))
