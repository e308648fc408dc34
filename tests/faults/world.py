"""A world in which every promise holds: it makes runs for the tests of the checker, without any service.

Each method does one thing as Confplane, ZooKeeper and Postgres would, and notes it in the history, the log and the trail.
A test makes a small run and breaks it in one place.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from confplane.domain.entities import Entity
from confplane.domain.etags import etag_of
from confplane.domain.ops import Op, OpType
from confplane.services.ports.trail import EXTERNAL_PRINCIPAL, PUT_BACK
from tests.faults.history import (
    Call,
    EntityState,
    FeedEvent,
    FeedState,
    InjectedFault,
    Kind,
    Mirror,
    Mode,
    NodeEvent,
    Part,
    PartResult,
    Run,
    TrailEntity,
    TrailIntent,
    TrailOutcome,
    TrailSchedule,
    Znode,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.history import Violation

OURS = 0x1000
THEIRS = 0x2000
ALICE = "user=alice"
BOB = "user=bob"
ADMIN = "User:admin"
KEY = "producer_byte_rate"


def part(entity: str = ALICE, value: float | None = None, *, facet: str = "client-quotas", **more: Any) -> Part:
    """Put one value; or other fields."""
    given = {} if value is None else {"set": {KEY: value}}
    return Part(facet, entity, f"/config/{Entity.from_id(entity).path}", **{"mode": Mode.REPLACE, **given, **more})


class World:
    """The events so far. Each begin and each end takes a second of the world's time."""

    def __init__(self, *, recording: bool = True) -> None:
        self.calls: list[Call] = []
        self.intents: list[TrailIntent] = []
        self.outcomes: list[TrailOutcome] = []
        self.states: dict[str, EntityState] = {}
        self.events: list[NodeEvent] = []
        self.nodes: dict[str, Znode] = {}
        self.faults: list[InjectedFault] = []
        self.followed = False
        """True if the run has a feed: other broken rules would be found there again."""
        self.feed: list[FeedEvent] = []
        self.feed_refusals: list[str] = []
        self.schedules: list[TrailSchedule] = []
        self._recording = recording
        self._now = 0.0
        self._zxid = 100
        self._keys: dict[str, Call] = {}
        self._event("/confplane/writers/one", 0, "", OURS)
        self._baseline = self._zxid

    # -- ZooKeeper

    def _tick(self) -> float:
        self._now += 1.0
        return self._now

    def _event(self, path: str, version: int | None, data: str | None, session: int) -> None:
        self.events.append(NodeEvent(self._zxid, int(self._now * 1000), session, path, version, data))

    def _set(self, path: str, config: dict[str, str], session: int) -> None:
        node = self.nodes.get(path)
        data = json.dumps({"version": 1, "config": config})
        version = 0 if node is None else node.version + 1
        self.nodes[path] = Znode(data, self._zxid if node is None else node.czxid, self._zxid, version)
        self._event(path, version, data, session)

    def _notify(self, path: str, session: int) -> None:
        data = json.dumps({"version": 2, "entity_path": path.removeprefix("/config/")})
        self._event(f"/config/changes/config_change_{len(self.events):010}", 0, data, session)

    def config(self, path: str) -> dict[str, str]:
        """The config of a znode."""
        node = self.nodes.get(path)
        found: dict[str, str] = {} if node is None or not node.data else json.loads(node.data)["config"]
        return found

    def wait(self, seconds: float) -> float:
        """Let time go by; return the moment."""
        self._now += seconds
        return self._now

    # -- Confplane

    def call(self, *parts: Part, process: int | None = 0, kind: Kind = Kind.WRITE, **more: Any) -> Call:
        """Begin a call."""
        known = {"principal": ADMIN if kind is Kind.WRITE else None, "reason": "because", "ticket": "T-1"}
        made = Call(
            len(self.calls), 0, process, kind, "PUT", "/client-quotas", self._tick(), parts, **{**known, **more}
        )
        self.calls.append(made)
        return made

    def write(
        self, *parts: Part, answered: bool = True, applied: bool = True, together: bool = False, **more: Any
    ) -> Call:
        """One call whose parts are applied, each as a change, or all as one; answered or cut off.

        ``together``: the changes are applied in one transaction.
        """
        made = self.call(*parts, **more)
        groups = [parts] if made.atomic else [(each,) for each in parts]
        self._zxid += together
        results = [self._change(made, group, applied=applied, shared=together) for group in groups]
        if answered and applied:
            self._answer(made, [result for group in results for result in group])
        elif answered:
            self.refuse(made, 503, 13)
        else:
            made.end, made.failure = self._tick(), "ReadError"
        return made

    def refuse(self, call: Call, status: int, code: int) -> None:
        """Answer that nothing was applied, with an HTTP status and Kafka's code."""
        call.end, call.status, call.error_code, call.outcome = self._tick(), status, code, "not_applied"
        call.revision = self._zxid

    def _answer(self, call: Call, results: Sequence[PartResult]) -> None:
        call.end, call.status, call.revision = self._tick(), 200, self._zxid
        if len(results) > 1:
            call.results = tuple(results)
            return
        [only], [result] = call.parts, results
        call.change_id = result.change_id
        call.content = self._shown(only)
        call.etag = etag_of(call.content)
        if call.key is not None:
            self._keys.setdefault(call.key, call)

    def repeat(self, call: Call, **more: Any) -> Call:
        """Send a call again, whose answer was stored."""
        made = self.call(*call.parts, key=call.key, resend_of=call.id, **more)
        first = self._keys[str(call.key)]
        made.end, made.status, made.revision, made.replayed = self._tick(), first.status, self._zxid, True
        made.change_id, made.content, made.etag, made.results = (
            first.change_id,
            first.content,
            first.etag,
            first.results,
        )
        return made

    def _change(self, call: Call, parts: Sequence[Part], *, applied: bool, shared: bool) -> list[PartResult]:
        planned = [(each, self.config(each.path), self._after(each)) for each in parts]
        changed = [item for item in planned if item[1] != item[2]]
        if not changed:
            return [PartResult(changed=False) for _ in parts]
        change_id = f"change-{len(self.intents):06}"  # their order is that of time
        entities = []
        for each, before, after in changed:
            node = self.nodes.get(each.path)
            entities.append(_row(each, node, before, after))
        self.intents.append(
            TrailIntent(
                *(change_id, 1, "change", None, "one", ADMIN, call.request_id, call.reason),
                recorded_at=datetime.fromtimestamp(self._now, UTC).isoformat(),
                entities=tuple(entities),
                ticket=call.ticket,
                temporary=call.temporary,
                ends=call.ends,
                reverts=tuple(each for each in (call.ends, call.reverts) if each is not None),
            )
        )
        if not applied:
            self.outcomes.append(TrailOutcome(change_id, 1, False, None, {}, 13, "aborted", ""))  # noqa: FBT003
            return []
        self._zxid += not shared
        self._event(f"/confplane/commits/{change_id}", 0, '{"version":1,"state":"committed"}', OURS)
        for each, _, after in changed:
            self._parents(each.path)
            self._notify(each.path, OURS)
            self._set(each.path, after, OURS)
            self._account(each.path)
        versions = {each.path: self.nodes[each.path].version for each, _, _ in changed}
        self.outcomes.append(TrailOutcome(change_id, 1, True, self._zxid, versions, None, None, ""))  # noqa: FBT003
        self._show("confplane", *entities)
        written = {each.path for each, _, _ in changed}
        return [
            PartResult(change_id=change_id, revision=self._zxid, changed=True)
            if each.path in written
            else PartResult(changed=False)
            for each in parts
        ]

    def end(self, begun: Call, *, value: int | None = None, early: bool = False, applied: bool = True) -> Call:
        """End a temporary change of one value; return the call, which the leader does not send.

        ``value``: what its key gets instead of the value before it. ``applied``: False if nothing is written.
        """
        made = self.call(ends=begun.change_id)
        self._undo(made, begun, value=value, applied=applied)
        if not early:
            self.calls.remove(made)
            if self.intents[-1].ends == begun.change_id:
                self.intents[-1] = replace(self.intents[-1], request_id=f"end-{begun.change_id}")
        moment = datetime.fromtimestamp(self._tick(), UTC).isoformat()
        self.schedules.append(TrailSchedule(str(begun.change_id), moment))
        return made

    def revert(self, done: Call, *, value: int | None = None, applied: bool = True) -> Call:
        """Revert the change of a call; ``value`` and ``applied`` as of ``end``."""
        made = self.call(reverts=done.change_id)
        self._undo(made, done, value=value, applied=applied)
        return made

    def _undo(self, call: Call, done: Call, *, value: int | None, applied: bool) -> None:
        intent = next(intent for intent in self.intents if intent.change_id == done.change_id)
        for row in intent.entities if applied else ():
            before = row.before if value is None else {KEY: str(value)}
            removed = tuple(row.after.keys() - before.keys())
            asked = part(row.entity_id, mode=Mode.ALTER, set={**before}, remove=removed)
            [result] = self._change(call, [asked], applied=True, shared=False)
            call.change_id = result.change_id
        call.end, call.status, call.revision = self._tick(), 200, self._zxid

    def _parents(self, path: str) -> None:
        parent = path.rpartition("/clients/")[0]
        if path.startswith("/config/users/") and parent and parent not in self.nodes:
            self.nodes[parent] = Znode("", self._zxid, self._zxid, 0)
            self._event(parent, 0, "", OURS)
            self._account(parent)

    def _after(self, each: Part) -> dict[str, str]:
        held = self.config(each.path)
        given = {key: str(value) for key, value in each.set.items()}
        if each.mode is Mode.ALTER:
            return {key: value for key, value in held.items() if key not in each.remove} | given
        return given

    def _shown(self, each: Part) -> dict[str, Any]:
        return {key: float(value) for key, value in self.config(each.path).items()}

    def read(self, entity: str = ALICE, *, min_revision: int | None = None, strong: bool = False) -> Call:
        """A GET of what there is."""
        asked = part(entity)
        made = self.call(asked, kind=Kind.READ, min_revision=min_revision, strong=strong)
        made.end, made.revision, made.content = self._tick(), self._zxid, self._shown(asked)
        made.status, made.error_code = (200, None) if made.content else (404, 91)
        made.etag = etag_of(made.content)
        return made

    # -- external writers

    def write_externally(
        self, entity: str = ALICE, value: int = 0, *, recorded: bool = True, notified: bool = True
    ) -> Call:
        """A external write, and its row."""
        asked = part(entity, value, facet="node", mode=Mode.NODE)
        made = self.call(asked, process=None, kind=Kind.EXTERNAL)
        before, node = self.config(asked.path), self.nodes.get(asked.path)
        self._zxid += 1
        if notified:
            self._notify(asked.path, THEIRS)
        self._set(asked.path, {KEY: str(value)}, THEIRS)
        made.end, made.status, made.revision = self._tick(), 200, self._zxid
        if self._recording and recorded:
            self._record(asked, before, node)
            self._account(asked.path)
        return made

    def put_back(self, entity: str = ALICE, value: int = 0) -> None:
        """The row of an external value in a Kafka cluster that the value here replaced."""
        asked = part(entity)
        theirs = {**self.config(asked.path), KEY: str(value)}
        row = replace(_row(asked, None, self.config(asked.path), theirs), ops=())
        change_id = f"put-back-{len(self.intents)}"
        self.intents.append(TrailIntent(change_id, 1, PUT_BACK, None, "", EXTERNAL_PRINCIPAL, "", None, "", (row,)))
        self.outcomes.append(TrailOutcome(change_id, 1, False, None, {}, None, "Put back", ""))  # noqa: FBT003

    def _show(self, source: str, *entities: TrailEntity) -> None:
        states = [
            FeedState(
                each.entity_id,
                self._zxid,
                tuple((key, each.before.get(key), each.after.get(key)) for key in each.keys),
            )
            for each in entities
        ]
        self.feed.append(FeedEvent("change", self.intents[-1].change_id, self._zxid, source, tuple(states)))

    def _record(self, asked: Part, before: dict[str, str], node: Znode | None) -> None:
        after = self.config(asked.path)
        if before == after:
            return
        change_id = f"external-{len(self.intents)}"
        entity = replace(_row(asked, node, before, after), ops=())
        now = self.nodes[asked.path]
        same = node is not None and node.czxid == now.czxid
        writes = now.version - node.version if node and same else (node is not None) + now.version + 1
        self.intents.append(
            TrailIntent(change_id, 1, "external", writes, "", EXTERNAL_PRINCIPAL, "", None, "", (entity,))
        )
        versions = {asked.path: self.nodes[asked.path].version}
        self.outcomes.append(TrailOutcome(change_id, 1, True, self._zxid, versions, None, None, ""))  # noqa: FBT003
        self._show("external", entity)

    def _account(self, path: str) -> None:
        node = self.nodes[path]
        entity = Entity.from_path(path.removeprefix("/config/")).id
        self.states[path] = EntityState(
            "/config",
            entity,
            True,  # noqa: FBT003 - as its fields
            node.czxid,
            node.version,
            node.mzxid,
            self.config(path),
        )

    # -- the end

    def run(self, **more: Any) -> Run:
        """All of it, as it would be collected."""
        quotas = {
            Entity.from_path(path.removeprefix("/config/")).id: self.config(path)
            for path in self.nodes
            if self.config(path)
        }
        made = Run(
            seed=0,
            quiet_s=1.0,
            calls=sorted(self.calls, key=lambda call: call.start),
            intents=self.intents,
            outcomes=self.outcomes,
            states=list(self.states.values()) if self._recording else [],
            watermark=self._zxid if self._recording else None,
            events=self.events,
            znodes=dict(self.nodes),
            mirrors=[Mirror(0, self._zxid, {"client-quotas": dict(quotas)}, ())],
            baseline_zxid=self._baseline,
            faults=tuple(self.faults),
            feed=tuple(self.feed) if self.followed else None,
            feed_refusals=tuple(self.feed_refusals),
            schedules=tuple(self.schedules),
        )
        return replace(made, **more)


def _row(asked: Part, node: Znode | None, before: dict[str, str], after: dict[str, str]) -> TrailEntity:
    version, czxid = (None, None) if node is None else (node.version, node.czxid)
    keys = tuple(sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key)))
    ops = ops_of(asked)
    return TrailEntity(asked.entity, asked.facet, asked.path, version, czxid, keys, ops, {**before}, {**after})


def ops_of(asked: Part) -> tuple[dict[str, Any], ...]:
    """The ops as the trail keeps them."""
    if asked.mode is Mode.DELETE:
        return ({"removeAll": True},)
    set_ = [Op(key, OpType.SET, value) for key, value in asked.set.items()]
    return tuple(op.as_json() for op in (*set_, *(Op(key, OpType.DELETE) for key in asked.remove)))


def rules(violations: Sequence[Violation]) -> set[str]:
    """The rules that were broken."""
    return {violation.rule for violation in violations}
