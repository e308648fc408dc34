"""Everything that is known of a run once it is quiet: the trail, the znodes, ZooKeeper's own logs, the mirrors."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import httpx
import psycopg
from kazoo.exceptions import NoNodeError
from psycopg.rows import dict_row

from confplane.domain.entities import Entity
from tests.faults.history import (
    EntityState,
    Mirror,
    Run,
    TrailEntity,
    TrailIntent,
    TrailOutcome,
    TrailSchedule,
    Znode,
    read_history,
)
from tests.faults.topology import CLUSTER
from tests.faults.txnlog import read_events

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.faults.history import InjectedFault
    from tests.faults.topology import Replica, Topology

_FACETS: Final = {"client-quotas": "quotas", "client-configs": "configs", "configs": "configs"}
_WALKED: Final = ("/config", "/confplane")
_PAGE: Final = 1_000


async def collect(
    topology: Topology,
    history: Path,
    *,
    seed: int,
    quiet_s: float | None,
    baseline_zxid: int,
    faults: Sequence[InjectedFault],
) -> Run:
    """Collect it."""
    trail = await asyncio.to_thread(read_trail, topology.service_dsn)
    return Run(
        seed=seed,
        quiet_s=quiet_s,
        calls=await asyncio.to_thread(read_history, history),
        **trail,
        events=await asyncio.to_thread(read_events, topology.ensemble.log_dirs),
        znodes=await asyncio.to_thread(walk, topology.zk),
        mirrors=list(await asyncio.gather(*(_mirror(replica) for replica in topology.replicas))),
        baseline_zxid=baseline_zxid,
        faults=tuple(sorted(faults, key=lambda fault: fault.began)),
    )


def states(connection: psycopg.Connection[dict[str, Any]]) -> list[EntityState]:
    """Read the recorder's states of all entities."""
    rows = connection.execute(
        "SELECT tree, entity_id, present, czxid, version, mzxid, content FROM entity_states WHERE cluster = %s"
        " ORDER BY tree, entity_id",
        (CLUSTER,),
    )
    return [EntityState(**row) for row in rows]


def watermark(connection: psycopg.Connection[dict[str, Any]]) -> int | None:
    """Read the revision up to which the trail is complete by the recorder's word."""
    row = connection.execute("SELECT revision FROM watermarks WHERE cluster = %s", (CLUSTER,)).fetchone()
    return None if row is None else row["revision"]


def connect(dsn: str) -> psycopg.Connection[dict[str, Any]]:
    """Open a connection whose rows are dicts."""
    return psycopg.connect(dsn, autocommit=True, row_factory=dict_row, connect_timeout=10)


def read_trail(dsn: str) -> dict[str, Any]:
    """Read the tables, as members of a :class:`Run`."""
    with connect(dsn) as connection:
        entities: dict[tuple[str, int], list[TrailEntity]] = {}
        for row in connection.execute("SELECT * FROM intent_entities ORDER BY change_id, attempt, position"):
            entities.setdefault((str(row["change_id"]), row["attempt"]), []).append(
                TrailEntity(
                    entity_id=row["entity_id"],
                    facet=row["facet"],
                    path=row["path"],
                    version_read=row["version_read"],
                    czxid_read=row["czxid_read"],
                    keys=tuple(row["keys"]),
                    ops=tuple(row["ops"]),
                    before=row["before"],
                    after=row["after"],
                )
            )
        intents = [
            TrailIntent(
                change_id=str(row["change_id"]),
                attempt=row["attempt"],
                kind=row["kind"],
                writes=row["writes"],
                writer=row["writer"],
                principal=row["principal"],
                request_id=row["request_id"],
                reason=row["reason"],
                ticket=row["ticket"],
                temporary=row["revert_at"] is not None,
                revert_at=None if row["revert_at"] is None else row["revert_at"].isoformat(),
                ends=None if row["ends"] is None else str(row["ends"]),
                reverts=tuple(map(str, row["reverts"] or ())),
                recorded_at=row["recorded_at"].isoformat(),
                entities=tuple(entities.get((str(row["change_id"]), row["attempt"]), ())),
            )
            for row in connection.execute("SELECT * FROM intents ORDER BY change_id, attempt")
        ]
        outcomes = [
            TrailOutcome(
                change_id=str(row["change_id"]),
                attempt=row["attempt"],
                committed=row["committed"],
                revision=row["revision"],
                versions=row["versions"],
                error_code=row["error_code"],
                error=row["error"],
                recorded_at=row["recorded_at"].isoformat(),
                remade=row["remade"] or {},
            )
            for row in connection.execute("SELECT * FROM outcomes ORDER BY change_id")
        ]
        schedules = [
            TrailSchedule(str(row["change_id"]), None if row["ended_at"] is None else row["ended_at"].isoformat())
            for row in connection.execute("SELECT change_id, ended_at FROM schedules ORDER BY change_id")
        ]
        return {
            "schedules": tuple(schedules),
            "intents": intents,
            "outcomes": outcomes,
            "states": states(connection),
            "watermark": watermark(connection),
        }


def walk(zk: KazooClient) -> dict[str, Znode]:
    """Read all znodes that matter."""
    found: dict[str, Znode] = {}
    paths = list(_WALKED)
    while paths:
        replies = [(path, zk.get_async(path), zk.get_children_async(path)) for path in paths]
        paths = []
        for path, content, children in replies:
            try:
                data, stat = content.get()
                names = children.get()
            except NoNodeError:
                continue  # a notification that was purged just now
            found[path] = Znode((data or b"").decode("utf-8", "replace"), stat.czxid, stat.mzxid, stat.version)
            paths += [f"{path}/{name}" for name in names]
    return found


# ---------------------------------------------------------------- Confplane's own view


async def _mirror(replica: Replica) -> Mirror:
    async with client(replica) as http:
        facets, revision = {}, 0
        for facet, member in _FACETS.items():
            items: dict[str, dict[str, Any]] = {}
            token = None
            while True:
                query = {"pageSize": str(_PAGE)} | ({} if token is None else {"pageToken": token})
                answer = (await http.get(f"/v1/clusters/{CLUSTER}/{facet}", params=query)).raise_for_status()
                page = answer.json()
                items |= {item["id"]: item[member] for item in page["items"]}
                revision = int(answer.headers["confplane-revision"])
                token = page["nextPageToken"]
                if token is None:
                    break
            facets[facet] = items
        ready = (await http.get("/readyz")).json()
        return Mirror(replica.number, revision, facets, tuple(ready.get("warnings", ())))


def client(replica: Replica) -> httpx.AsyncClient:
    """Open a client of one Confplane."""
    token = {"Authorization": f"Bearer {replica.service.token}"}
    return httpx.AsyncClient(base_url=replica.service.url, headers=token, timeout=10, trust_env=False)


# ---------------------------------------------------------------- quiet


class NotQuietError(Exception):
    """The services did not become quiet in time; the message names what is left."""


async def until_quiet(topology: Topology, seconds: float) -> float:
    """Wait until nothing is left to be done, and return how long that took.

    Quiet is: no change without an outcome and no temporary change without its end, the recorder's state of every entity is what its znode is, its watermark has
    reached the last write, and so have all mirrors.

    Raises:
        NotQuietError: It is not after so many seconds.
    """
    began = time.monotonic()
    left = "nothing was looked at yet"
    while time.monotonic() - began < seconds:
        try:
            async with asyncio.timeout(30):
                left = await _left(topology)
        except Exception as error:  # noqa: BLE001 - what does not answer yet is not quiet
            left = repr(error)
        if not left:
            return time.monotonic() - began
        await asyncio.sleep(0.25)
    raise NotQuietError(f"not quiet after {seconds:g} s: {left}")


async def _left(topology: Topology) -> str:
    """Return what is left to be done, "" where it is nothing."""
    left, last = await asyncio.to_thread(unrecorded, topology.service_dsn, topology.zk)
    if left:
        return left
    revisions = await asyncio.gather(*(_revision(replica) for replica in topology.replicas))
    if any(revision is None or revision < last for revision in revisions):
        return f"the mirrors are at {revisions}, the last write is {last}"
    return ""


def unrecorded(dsn: str, zk: KazooClient) -> tuple[str, int]:
    """Return what the trail lacks, "" where it is level with ZooKeeper, and the revision of the last write."""
    found, temporary, known, reached = _recorded(dsn)
    if found or temporary:
        return f"{found} changes have no outcome, and {temporary} temporary ones no end", 0
    nodes = walk(zk)
    there = {path: (node.czxid, node.version) for path, node in nodes.items() if _is_entity(path)}
    recorded = {
        f"{state.tree}/{Entity.from_id(state.entity_id).path}": (state.czxid, state.version)
        for state in known
        if state.present
    }
    differing = sorted(path for path in there.keys() | recorded.keys() if there.get(path) != recorded.get(path))
    if differing:
        return f"the recorder lags on {len(differing)} entities, such as {differing[0]}", 0
    last = max((nodes[path].mzxid for path in there), default=0)
    if reached is None or reached < last:
        return f"the recorder's watermark is {reached}, the last write {last}", 0
    return "", last


def _recorded(dsn: str) -> tuple[int, int, list[EntityState], int | None]:
    with connect(dsn) as connection:
        row = connection.execute(
            "SELECT count(DISTINCT change_id) FILTER (WHERE outcomes.committed IS NULL) AS open,"
            " count(DISTINCT change_id) FILTER (WHERE outcomes.committed AND revert_at IS NOT NULL"
            " AND NOT EXISTS (SELECT FROM schedules WHERE schedules.change_id = intents.change_id"
            " AND ended_at IS NOT NULL)) AS temporary FROM intents LEFT JOIN outcomes USING (change_id)"
        ).fetchone()
        assert row is not None
        return row["open"], row["temporary"], states(connection), watermark(connection)


async def _revision(replica: Replica) -> int | None:
    """Return the revision of a mirror that is neither stale nor being loaded."""
    async with client(replica) as http:
        answer = (await http.get(f"/v1/clusters/{CLUSTER}")).raise_for_status()
        if "confplane-stale-ms" in answer.headers:
            return None
        return int(answer.headers["confplane-revision"])


def _is_entity(path: str) -> bool:
    """Say whether a znode is an entity's, and not a directory of them."""
    parts = path.split("/")[1:]
    return len(parts) in {3, 5} and parts[0] == "config" and parts[1] != "changes"
