"""Clients and external writers of the same keys of a real cluster at once, checked against the metadata log.

Under ``adopt`` tree and cluster are equal at the end, under ``enforce`` what was set here stands. Every record of others
is in a row, or in a row's run, or a caller's change replaced it; none of this service's own is in a row of others; each
alter by a caller has one outcome. What others set during a freeze, while changes of callers wait, is in rows without
exception. Processes are killed meanwhile, and in the long tests controllers too.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.entities import EntityType
from tests.interop.admin import Admin
from tests.kraft.outside.both import Callers, ExternalWriters, Values, clear, keys
from tests.kraft.outside.log import log_up_to, mark, offset_of
from tests.kraft.outside.shared_trail_check import check_shared_trail
from tests.kraft.outside.side import Side
from tests.kraft.outside.trail_check import meanings
from tests.kraft.outside.writers import BEYOND, UNSHOWN, declared
from tests.kraft.test_adopting_faults import active
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.kraft.outside.both import Key
    from tests.kraft.outside.log import Mark
    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster

pytestmark = pytest.mark.proof
_CLUSTER = "/v1/clusters/default"
SOON = {
    "confplane.services.kraft.observe.entity_types.SHORTEST_S": 0.5,
    "confplane.services.kraft.observe.entity_types.INTERVALS_S": {
        "client-quotas": 0.5,
        "brokers": 1.0,
        "groups": 1.0,
        "client-metrics": 1.0,
        "topics": 2.0,
    },
    "confplane.services.kraft.observe.entity_types.COST_FACTOR": 2,
    "confplane.services.kraft.observe.entity_types.BROKER_FACTOR": 1,
}
"""Polls come so often that many are made in a few seconds."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", [pytest.param("adopt", marks=pytest.mark.long), "enforce"])
async def test_concurrent_external_writes_are_reported_and_ours_are_not(
    quorum: KraftCluster,
    kraft_class_path: str,
    zookeeper: ZooKeeper,
    postgres: Postgres,
    tmp_path: Path,
    mode: str,
) -> None:
    both = Both(quorum, kraft_class_path, tmp_path, mode=mode, seed=1)
    await both.run(zookeeper, postgres, seconds=2.0, failovers=0, freezes=1)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("mode", ["adopt", "enforce"])
async def test_minutes_of_concurrent_external_writes_are_reported(
    quorum: KraftCluster,
    kraft_class_path: str,
    zookeeper: ZooKeeper,
    postgres: Postgres,
    tmp_path: Path,
    mode: str,
    seed: int,
) -> None:
    both = Both(quorum, kraft_class_path, tmp_path, mode=mode, seed=seed)
    await both.run(zookeeper, postgres, seconds=180.0, failovers=2)


class Both:
    """A run of both.

    Args:
        kafka: The cluster.
        class_path: Of Kafka.
        directory: For logs.
        mode: The mode of the target.
        seed: Of all choices.
        most: How often a key is put back in ten minutes; None: as shipped.
    """

    def __init__(
        self, kafka: KraftCluster, class_path: str, directory: Path, *, mode: str, seed: int, most: int | None = None
    ) -> None:
        self._kafka, self._class_path, self._directory = kafka, class_path, directory
        self._mode, self._seed = mode, seed
        self._keys = keys(f"{mode}-{seed}", [each.node_id for each in kafka.brokers])
        self._topics = sorted({each.resource[1] for each in self._keys if each.entity.types[0] is EntityType.TOPIC})
        self._values = Values(self._keys)
        self._constants: dict[str, Any] = dict(SOON)
        # A freeze finds changes that wait.
        self._constants |= {
            "confplane.services.kraft.loops.JOURNAL_POLL_S": 0.25,
            "confplane.services.kraft.apply.quiesce.DRAIN_S": 0.0,
        }
        # Others write the same few keys all the time, and are not to be let alone for that.
        self._constants["confplane.services.kraft.reconcile.enforce.TIMES"] = 1_000_000 if most is None else most

    async def run(
        self, zookeeper: ZooKeeper, postgres: Postgres, *, seconds: float, failovers: int, freezes: int = 2
    ) -> None:
        """Write for a while, and check the result."""
        with ExitStack() as undo:
            bootstrap = ",".join(self._kafka.bootstrap)
            admin = undo.enter_context(Admin(self._directory, class_path=self._class_path, bootstrap=bootstrap))
            # Brokers have records of other tests.
            self._begun = await asyncio.to_thread(mark, admin)
            others = ExternalWriters(admin, self._kafka.bootstrap[0], self._keys, self._values, self._seed)
            await others.first(self._topics)
            side = Side(
                self._mode,
                self._directory / "side",
                zookeeper=zookeeper,
                postgres=postgres,
                kafka={"bootstrap": self._kafka.bootstrap},
                mode=self._mode,
                processes=2,
                constants=self._constants,
            )
            callers = Callers(side.services, self._keys, self._values, self._seed)
            try:
                await asyncio.to_thread(side.begin)
                stopped = asyncio.Event()
                writing = asyncio.gather(callers.write(stopped), others.write(stopped))
                kills = await self._disturb(side, seconds, failovers)
                stopped.set()
                await writing
                shown = [await self._frozen(side, admin, callers, others) for _ in range(freezes)]
                await self._check(side, admin, callers, repeats=kills, shown=shown)
            finally:
                # A service that still runs would put back what is cleared.
                await asyncio.to_thread(side.end)
                await clear(admin, self._keys, self._topics)

    async def _disturb(self, side: Side, seconds: float, failovers: int) -> int:
        """Kill processes, and active controllers, in turn; return the number of kills."""
        steps = 2 + 2 * failovers
        for number in range(steps):
            await asyncio.sleep(seconds / (steps + 1))
            if number % 2 or not failovers:
                await asyncio.to_thread(side.kill, number // 2 % 2 if failovers else number)
            else:
                killed = await active(self._kafka)
                killed.kill()
                await asyncio.sleep(3.0)
                await asyncio.to_thread(killed.start)
        await asyncio.sleep(seconds / (steps + 1))
        return steps

    async def _frozen(self, side: Side, admin: Admin, callers: Callers, others: ExternalWriters) -> Mark:
        """Write externally while client changes wait, in a freeze; return a mark that was polled afterwards."""
        async with side.services[0].client() as http:

            async def waiting() -> bool:
                """Write, and freeze at once; say whether some of it waits."""
                await until(lambda: self._equal(side, admin, http), why=side.service.tail)
                await callers.write_each(http)
                rest: dict[str, Any] = {"rested": False}
                while not rest["rested"]:
                    rest = (await http.request("POST", f"{_CLUSTER}:freeze", json={"reason": "a test"})).body[
                        "applying"
                    ]
                if not rest["pending"]:
                    await http.request("POST", f"{_CLUSTER}:thaw", json={"reason": "a test"})
                return bool(rest["pending"])

            await until(waiting)
            await others.write_each()
            # The values in front of a change are known once it has an outcome.
            await asyncio.to_thread(side.settled)
            shown = await asyncio.to_thread(mark, admin)
            await until(lambda: asyncio.to_thread(side.poll))
            await http.request("POST", f"{_CLUSTER}:thaw", json={"reason": "a test"})
        return shown

    async def _check(self, side: Side, admin: Admin, callers: Callers, *, repeats: int, shown: Sequence[Mark]) -> None:
        async with side.services[0].client() as http:
            await until(lambda: self._equal(side, admin, http), why=side.service.tail)
            last = await asyncio.to_thread(mark, admin)
            # Nothing of the end may come after the mark.
            await until(lambda: self._equal(side, admin, http))
        log = await asyncio.to_thread(
            log_up_to, last, self._kafka, self._class_path, begun=self._begun, beyond=BEYOND, unshown=UNSHOWN
        )
        rows = await asyncio.to_thread(side.rows)
        chosen: dict[str, list[str]] = {}
        for each in self._keys:
            chosen.setdefault(each.entity.id, []).append(each.name)
        shares = check_shared_trail(
            log,
            rows,
            await asyncio.to_thread(side.tree),
            keys=chosen,
            is_ours=self._values.is_ours,
            enforced=self._mode == "enforce",
            repeats=repeats,
            shown=[offset_of(log, each) for each in shown],
        )
        shares.faults += callers.faults(await asyncio.to_thread(side.settled), rows)
        sys.stdout.write(f"{self._mode}, seed {self._seed}: {shares}, {len(callers.asked)} alters by callers\n")
        assert not shares.faults, "\n".join(shares.faults)
        assert shares.named
        assert shares.ours
        assert shares.shown

    async def _equal(self, side: Side, admin: Admin, http: ConfplaneClient) -> bool:
        """Poll everything; return whether nothing waits, and whether the cluster has what the tree has."""
        if not await asyncio.to_thread(side.poll):
            return False
        target = (await http.request("GET", "/v1/clusters/default")).body["target"]
        if target["applying"] is None or target["applying"]["pending"]:
            return False
        chosen = sorted({each.resource for each in self._keys if not each.of_quotas})
        found = await asyncio.to_thread(declared, admin, chosen)
        tree = await asyncio.to_thread(side.tree)
        return all(
            meanings(_part(found, each)).issuperset(meanings(_part(tree, each)))
            if self._mode == "enforce"
            else meanings(_part(found, each)) == meanings(_part(tree, each))
            for each in self._keys
        )


def _part(found: dict[str, dict[str, str]], key: Key) -> dict[str, str]:
    """Return one key of its entity's config."""
    config = found.get(key.entity.id, {})
    return {key.name: config[key.name]} if key.name in config else {}
