"""Replicas in the process of the test, which record and reconcile round by round, and readers of the trail."""

from __future__ import annotations

import contextlib
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar, cast

import psycopg

from confplane import wiring
from confplane.audit import PostgresEntityStates, PostgresOpenChanges
from confplane.domain.errors import UnavailableError
from confplane.domain.etags import Precondition
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import Edit
from confplane.services.ports.trail import AuditQuery
from confplane.services.recorder.record import Recorder
from confplane.services.upkeep.reconcile import Reconciler
from confplane.settings import Settings
from tests.audit.rows import fetch
from tests.support.stores import soon, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from confplane.domain.entities import Entity
    from confplane.services.changes.edits import EditResult, EntryResult
    from confplane.services.ports.trail import AuditRecord
    from tests.support import servers

_T = TypeVar("_T")

DEADLINE_MS = 10_000
HOUR_MS = 3_600_000
"""The reconciler's deadline of a request: no pause of a test makes a change of a living writer old."""
HISTORY = ("intents", "intent_entities", "change_keys", "outcomes")
TRAIL = (*HISTORY, "entity_states", "watermarks")


async def answered(call: Callable[[], Awaitable[_T]]) -> _T:
    """Call until the stores answer."""

    async def answer() -> tuple[_T]:
        return (await call(),)

    found: tuple[_T] = await until(answer, refused=UnavailableError)
    return found[0]


class Leads:
    """A process that believes that it leads, regardless of other processes."""

    held = True

    async def seek(self, _deadline: float) -> bool:
        return True


class Replica:
    """The parts of one process, with a reconciler and a recorder that run no round by themselves."""

    def __init__(self, chroot: str, database: servers.Database, directory: Path, **cluster: Any) -> None:
        settings = Settings.model_validate(
            {
                "clusters": {"default": {"zookeeper": chroot, "session_timeout_ms": 20_000, **cluster}},
                "postgres": {"dsn": database.service_dsn},
                "admin_token_file": directory / "token",
            }
        )
        self.settings = settings
        self.parts = wiring.build(settings)
        self.store = self.parts.stores["default"]
        self.audit = self.parts.audit
        self.states = PostgresEntityStates(self.parts.database)
        self.recorder = Recorder(
            self.store, self.states, wiring.redaction(settings.clusters["default"], self.store), deadline_ms=DEADLINE_MS
        )
        self.reconciler = Reconciler(
            self.store, self.audit, PostgresOpenChanges(self.parts.database), deadline_ms=HOUR_MS
        )
        self._stack = AsyncExitStack()

    async def start(self, *, leads: bool = True) -> Replica:
        await self._stack.enter_async_context(self.parts.running())
        await self.store.wait_for(0, soon(60))
        await until(lambda: self.store._guard.known and self.store.status().stale_ms is None)
        await answered(lambda: self.parts.incarnation_checks["default"].ensure(soon()))
        if leads:
            cast("Any", self.store).leadership = Leads()
            # Now rather than within a second of now: a durable commit also makes those before it durable, which a
            # test may be about to lose.
            await answered(self.parts.incarnation_checks["default"].publish)
        return self

    async def stop(self) -> None:
        await self.recorder.stop()
        await self.reconciler.stop()
        await self._stack.aclose()

    async def round(self) -> bool:
        """Run one round of the recorder, once the stores answer."""
        return await answered(self.recorder.round)

    async def reconcile(self) -> bool:
        """Run one round of the reconciler, once the stores answer."""
        return await answered(self.reconciler.round)

    async def record(self) -> int:
        """Rounds until all that ZooKeeper had at the call is explained; return the watermark then."""
        revision = await self.store.catch_up(soon(60))

        async def explained() -> int | None:
            await self.round()
            found = await self.states.watermark("default")
            return found.revision if found is not None and found.complete and found.revision >= revision else None

        return cast("int", await until(explained, why=lambda: self.recorder._explainer.pending, pause_s=0))

    async def alter(self, entity: Entity, facet: FacetName = FacetName.CLIENT_QUOTAS, **values: Any) -> EditResult:
        """One change of ours; keys with ``_`` for ``.`` in client configs."""
        ops = tuple(Op(key, OpType.SET, value) for key, value in values.items())
        return (await self.edit(entity, facet, ops))[0]

    async def edit(self, entity: Entity, facet: FacetName, ops: tuple[Any, ...]) -> list[EditResult]:
        collection = self.parts.clusters.get("default").facets[facet]
        caller = Caller.operator("User:admin", "127.0.0.1", "r", soon(30))
        return await self.parts.alter.alter(collection, [Edit(entity, ops)], caller)

    async def edit_facets(
        self, entity: Entity, ops: Mapping[FacetName, Op], etags: Mapping[FacetName, str] | None = None
    ) -> EntryResult:
        """One change of ours to several facets of an entity, each with its ETag as a precondition if given."""
        collections = self.parts.clusters.get("default").facets
        entry = {
            collections[facet]: Edit(entity, (op,), precondition=Precondition(if_match=_listed(etags, facet)))
            for facet, op in ops.items()
        }
        caller = Caller.operator("User:admin", "127.0.0.1", "r", soon(30))
        return (await self.parts.alter.alter_entries([entry], caller))[0]

    async def edit_all(self, entities: Sequence[Entity], *, atomic: bool = True, **values: Any) -> list[EditResult]:
        """One change of ours to all of these; or one to each, which share a transaction."""
        collection = self.parts.clusters.get("default").facets[FacetName.CLIENT_QUOTAS]
        ops = tuple(Op(key, OpType.SET, value) for key, value in values.items())
        caller = Caller.operator("User:admin", "127.0.0.1", "r", soon(30))
        return await self.parts.alter.alter(
            collection, [Edit(entity, ops) for entity in entities], caller, atomic=atomic
        )

    @contextlib.asynccontextmanager
    async def without_outcomes(self) -> AsyncIterator[None]:
        """Changes of ours stay without an outcome within the block, and are settled at its end."""
        audit = cast("Any", self.audit)
        conclude = audit.conclude

        async def unheard(_outcomes: Any) -> bool:
            return False

        audit.conclude = unheard
        try:
            yield
        finally:
            audit.conclude = conclude
        await Reconciler(self.store, self.audit, PostgresOpenChanges(self.parts.database), deadline_ms=0).round()

    async def trail(self, **filters: Any) -> list[AuditRecord]:
        """The trail, oldest first by revision."""
        records, _ = await self.audit.search(AuditQuery("default", page_size=1000, **filters))
        return sorted(records, key=lambda record: (record.outcome.revision or 0) if record.outcome else 0)

    async def external(self, **filters: Any) -> list[AuditRecord]:
        return [record for record in await self.trail(**filters) if record.kind == "external"]


def _listed(etags: Mapping[FacetName, str] | None, facet: FacetName) -> tuple[str, ...] | None:
    return None if etags is None or facet not in etags else (etags[facet],)


def states(dsn: str) -> dict[str, tuple[Any, ...]]:
    """The explained states: entity id -> present, czxid, version, content."""
    rows = fetch(dsn, "SELECT entity_id, present, czxid, version, content FROM entity_states")
    return {row[0]: row[1:] for row in rows}


class Backup:
    """A backup of the tables of the trail, to be restored later: later rows are lost then."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        with psycopg.connect(dsn, autocommit=True) as connection:
            for table in TRAIL:
                connection.execute(f"CREATE TABLE backup_of_{table} AS TABLE {table}")

    def restore(self) -> None:
        """Restore the tables."""
        with psycopg.connect(self._dsn) as connection:
            for table in TRAIL:
                connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 - a constant
                connection.execute(f"INSERT INTO {table} SELECT * FROM backup_of_{table}")  # noqa: S608 - a constant
                connection.execute(f"DROP TABLE backup_of_{table}")
            for table in HISTORY:
                connection.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only")


def everything(dsn: str) -> str:
    """All text that the tables of the trail hold."""
    return "".join(str(fetch(dsn, f"SELECT * FROM {table}")) for table in TRAIL)  # noqa: S608 - literals


def shown(record: AuditRecord) -> tuple[Any, ...]:
    """The parts that a test compares: versions, writes, before, after."""
    [entity] = record.intent.entities
    assert record.outcome is not None
    return (
        entity.version_read,
        record.outcome.versions.get(entity.path),
        record.writes,
        entity.before,
        entity.after,
    )


def assert_chains(records: list[AuditRecord]) -> dict[str, int]:
    """Check that each version is explained exactly once, and that each change begins where the last one ended.

    Returns the versions that the paths have at the end.
    """
    at: dict[str, tuple[int, dict[str, str | None]]] = {}
    for record in records:
        if record.outcome is None or not record.outcome.committed:
            continue
        for entity in record.intent.entities:
            version, after = at.get(entity.path, (-1, entity.before))
            read = -1 if entity.version_read is None else entity.version_read
            assert read == version, (entity.path, read, version, record)
            reached = record.outcome.versions[entity.path]
            assert reached - version == (record.writes or 1), (entity.path, reached, version)
            assert entity.before == after, (entity.path, after, record)
            at[entity.path] = (reached, entity.after)
    return {path: version for path, (version, _) in at.items()}
