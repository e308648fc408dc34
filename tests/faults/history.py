"""The calls of the fault suite's clients, a JSON line for each begin and end, and all data of one run for the checker.

A history is a file of lines. ``{"event": "invoke", ...}`` has what a :class:`Call` knew before it was sent,
``{"event": "complete", "id": ...}`` what came back. A call without its second line was never answered: its process, or
the suite's own client, went away first.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


UNNOTIFIED: Final = "ended before its notification"
"""The ``failure`` of an external write whose notification was left out on purpose."""


class Kind(StrEnum):
    """The purpose of a call."""

    WRITE = "write"
    """A request to Confplane that means to change something."""
    READ = "read"
    """A GET of one entity's facet."""
    EXTERNAL = "external"
    """A write past Confplane, as Kafka's tools make it: the config node, then its notification. ``process`` is None,
    ``status`` is 200 when both were confirmed, and ``revision`` is the config node's mzxid where that is known."""


class Mode(StrEnum):
    """The effect of a part on the facet's keys of its entity."""

    REPLACE = "replace"
    """PUT: afterwards the facet has exactly ``set``."""
    CREATE = "create"
    """POST: as REPLACE, on an entity without keys of this facet, or with the very same ones."""
    DELETE = "delete"
    """Afterwards the facet has no keys."""
    ALTER = "alter"
    """``set`` and ``remove``; the facet's other keys stay."""
    NODE = "node"
    """Of external writes: afterwards the whole znode has exactly ``set``."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a call that concerns one entity."""

    facet: str
    """``client-quotas``, ``client-configs`` or ``configs``; of external writes ``node``."""
    entity: str
    """The canonical id, such as ``user=alice,client-id=billing``."""
    path: str
    """The znode, below the chroot: ``/config/users/alice/clients/billing``."""
    mode: Mode
    set: dict[str, str | float] = field(default_factory=dict)
    """Values as they were sent: numbers of quotas, else texts. A value is sent once in a run, if it is no number of an
    enumeration (``acks``): who finds it knows the call."""
    remove: tuple[str, ...] = ()
    if_match: str | None = None
    """The ETag that the facet must have, ``*`` for any."""
    if_none_match: bool = False
    """``If-None-Match: *``: only where the facet has no keys."""


@dataclass(frozen=True, slots=True)
class PartResult:
    """The answer to one part; answers keep the order of the parts."""

    error_code: int = 0
    """Kafka's; 0 where it succeeded."""
    error_name: str = "NONE"
    change_id: str | None = None
    """None also where nothing had to be changed."""
    revision: int | None = None
    outcome: str | None = None
    """``not_applied`` or ``unknown`` of a write that failed; None if the response has none."""
    changed: bool | None = None
    """True for an answer with a diff that is not empty; None for an answer without one (PUT, POST, DELETE)."""


@dataclass(slots=True)
class Call:
    """One request, or one external write. Times are seconds of the suite's one monotonic clock."""

    id: int
    client: int
    process: int | None
    """The Confplane process that it was sent to, from 0."""
    kind: Kind
    method: str
    path: str
    """With the query."""
    start: float
    parts: tuple[Part, ...] = ()
    atomic: bool = False
    """All parts are one transaction, or none is applied. Of single parts it is False."""
    key: str | None = None
    """The Idempotency-Key."""
    resend_of: int | None = None
    """The id of the call that this one repeats, with the same key and body."""
    min_revision: int | None = None
    """The request's ``Confplane-Min-Revision``."""
    strong: bool = False
    """``consistency=strong``."""
    principal: str | None = None
    """The sender, by the name that the trail must have; None of external writes, and in runs kept before this was noted."""
    reason: str | None = None
    ticket: str | None = None
    validate_only: bool = False
    """True for a request that must change nothing."""
    temporary: bool = False
    """True for a request with ``expiresIn``."""
    ends: str | None = None
    """Of an early end: the id of the temporary change."""
    reverts: str | None = None
    """Of a revert: the id of the change."""

    end: float | None = None
    """None: never answered."""
    status: int | None = None
    """HTTP's; None if the connection broke or the client's timeout passed (``failure`` names the error)."""
    failure: str | None = None
    """The error that left the call without an answer, or a problem's ``detail``."""
    error_code: int | None = None
    """``kafkaErrorCode`` of a problem."""
    outcome: str | None = None
    """A problem's ``outcome``: ``not_applied``, ``unknown``, or None where it has none. Without an answer ``not_applied``
    if nothing was sent because the connection was refused."""
    results: tuple[PartResult, ...] = ()
    """One for each part if the response has them; empty for a problem about the whole request."""
    change_id: str | None = None
    """``Confplane-Change-Id``."""
    revision: int | None = None
    """``Confplane-Revision``: of reads what the mirror was at, of writes at least the write's own."""
    replayed: bool = False
    """``Idempotency-Replayed: true``."""
    stale_ms: int | None = None
    """``Confplane-Stale-Ms`` of a mirror that may be stale."""
    etag: str | None = None
    content: dict[str, Any] | None = None
    """Of a read that was answered 200 and of a PUT or POST: the facet's keys with their values, as answered. Of a read
    answered 404 with an entity that has nothing: ``{}``."""

    @property
    def request_id(self) -> str:
        """The call's ``X-Request-Id``, which the intents of its changes have too."""
        return f"call-{self.id}"

    @property
    def acknowledged(self) -> bool:
        """True for a call of which some part was answered as done."""
        return self.status is not None and self.status < 300

    @property
    def unknown(self) -> bool:
        """True for a call whose client can't know if it was applied: no answer, 504, or a problem with ``unknown``."""
        return self.kind is not Kind.READ and (
            (self.status is None and self.outcome is None)
            or self.outcome == "unknown"
            or any(result.outcome == "unknown" for result in self.results)
            or (self.status is not None and self.status >= 500 and self.outcome is None)
        )


_SENT = (
    *("id", "client", "process", "kind", "method", "path", "start", "parts", "atomic", "key", "resend_of"),
    *("min_revision", "strong", "principal", "reason", "ticket", "validate_only", "temporary", "ends", "reverts"),
)


class Recorder:
    """Writes a history, each line at once, so that nothing is lost with the suite."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.calls = 0
        self.writes = 0
        self.acknowledged = 0
        self.unknown = 0

    def invoke(self, call: Call) -> None:
        """Write that a call is about to be sent."""
        self.calls += 1
        self.writes += call.kind is Kind.WRITE
        self._line("invoke", {name: _plain(getattr(call, name)) for name in _SENT})

    def complete(self, call: Call) -> None:
        """Write what came of it."""
        if call.kind is Kind.WRITE:
            self.acknowledged += call.acknowledged
            self.unknown += call.unknown
        rest = {item.name: _plain(getattr(call, item.name)) for item in fields(call) if item.name not in _SENT}
        self._line("complete", {"id": call.id, **{name: value for name, value in rest.items() if value is not None}})

    def _line(self, event: str, members: dict[str, Any]) -> None:
        self._file.write(json.dumps({"event": event, **members}) + "\n")
        self._file.flush()


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [asdict(item) for item in value]
    return value


def read_history(path: Path) -> list[Call]:
    """Read a history, ordered by the calls' starts."""
    calls: dict[int, Call] = {}
    with path.open(encoding="utf-8") as file:
        for line in file:
            members = json.loads(line)
            if members.pop("event") == "invoke":
                call = Call(**members | {"kind": Kind(members["kind"]), "parts": tuple(map(_part, members["parts"]))})
                calls[call.id] = call
            else:
                call = calls[members.pop("id")]
                members["results"] = tuple(PartResult(**item) for item in members.get("results", ()))
                for name, value in members.items():
                    setattr(call, name, value)
    return sorted(calls.values(), key=lambda call: call.start)


def _part(members: dict[str, Any]) -> Part:
    return Part(**members | {"mode": Mode(members["mode"]), "remove": tuple(members["remove"])})


# ---------------------------------------------------------------- what is found after a run


@dataclass(frozen=True, slots=True)
class TrailEntity:
    """A row of ``intent_entities``."""

    entity_id: str
    facet: str
    path: str
    version_read: int | None
    czxid_read: int | None
    keys: tuple[str, ...]
    ops: tuple[dict[str, Any], ...]
    before: dict[str, str | None]
    after: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class TrailIntent:
    """A row of ``intents``, with its entities in their order."""

    change_id: str
    attempt: int
    kind: str
    """``change``, ``external``."""
    writes: int | None
    writer: str
    principal: str
    request_id: str
    reason: str | None
    recorded_at: str
    entities: tuple[TrailEntity, ...]
    ticket: str | None = None
    temporary: bool = False
    """True for a change with an end."""
    revert_at: str | None = None
    """The time of that end; None in runs kept before this was noted."""
    ends: str | None = None
    """The temporary change that this one ends."""
    reverts: tuple[str, ...] = ()
    """The changes that this one ends or reverts."""


@dataclass(frozen=True, slots=True)
class TrailOutcome:
    """A row of ``outcomes``."""

    change_id: str
    attempt: int
    committed: bool
    revision: int | None
    versions: dict[str, int]
    error_code: int | None
    error: str | None
    recorded_at: str
    remade: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrailSchedule:
    """A row of ``schedules``."""

    change_id: str
    ended_at: str | None
    """None: it is still in force."""


@dataclass(frozen=True, slots=True)
class EntityState:
    """A row of ``entity_states``: the last state of an entity that the recorder explained."""

    tree: str
    entity_id: str
    present: bool
    czxid: int
    version: int
    mzxid: int
    content: Any


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A creation, a set or a deletion of a znode in ZooKeeper's own transaction log. This is what really happened.

    Those of one transaction share a zxid and are in its order. Only paths below ``/config`` and ``/confplane`` are here.
    """

    zxid: int
    time_ms: int
    session: int
    """The ZooKeeper session that did it; 0 where the server did (the ephemeral nodes of a session that ended)."""
    path: str
    """Below the chroot."""
    version: int | None
    """The version afterwards: 0 of a creation, None of a deletion."""
    data: str | None
    """UTF-8; None of a deletion. What is no UTF-8 has U+FFFD."""


@dataclass(frozen=True, slots=True)
class Znode:
    """A znode as it is after the run."""

    data: str
    czxid: int
    mzxid: int
    version: int


@dataclass(frozen=True, slots=True)
class Mirror:
    """The answers of one process after the run."""

    process: int
    revision: int
    facets: dict[str, dict[str, dict[str, Any]]]
    """Facet -> entity id -> the facet's keys with their values."""
    warnings: tuple[str, ...]
    """Of ``/readyz``."""


@dataclass(frozen=True, slots=True)
class FeedState:
    """One entity of an event."""

    id: str
    revision: int
    keys: tuple[tuple[str, Any, Any], ...]
    """Each key with its values before and after."""
    facet: str = "client-quotas"
    complete: bool = False
    """True if it has no other keys in the facet."""

    @staticmethod
    def of(entity: dict[str, Any]) -> FeedState:
        """Return an entity of an event of the API."""
        keys = ((key["key"], key["before"], key["after"]) for key in entity["keys"] if not key["sensitive"])
        return FeedState(entity["id"], int(entity["revision"]), tuple(keys), entity["facet"], entity["complete"])


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """An event as a consumer received it."""

    type: str
    change_id: str
    revision: int
    source: str
    entities: tuple[FeedState, ...]

    @staticmethod
    def of(event: dict[str, Any]) -> FeedEvent:
        """Return an event of the API."""
        entities = tuple(map(FeedState.of, event["entities"]))
        return FeedEvent(event["type"], event["changeId"], int(event["revision"]), event["source"], entities)


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault that was injected. Times are those of the calls' clock."""

    kind: str
    targets: tuple[str, ...]
    began: float
    """From then on it was effective, for all of its targets."""
    ended: float
    """The earliest end of its effect."""


@dataclass(frozen=True, slots=True)
class Run:
    """All that is known of a run once it is quiet."""

    seed: int
    quiet_s: float | None
    """Seconds from the end of the last fault until all was quiet; None: it never was."""
    calls: list[Call]
    """Ordered by start."""
    intents: list[TrailIntent]
    """Ordered by change id, attempt."""
    outcomes: list[TrailOutcome]
    """Ordered by change id."""
    states: list[EntityState]
    watermark: int | None
    events: list[NodeEvent]
    """Ordered by zxid, all since the ensemble's first start."""
    znodes: dict[str, Znode]
    """All znodes below ``/config`` (notifications too) and ``/confplane``, by path below the chroot."""
    mirrors: list[Mirror]
    baseline_zxid: int
    """The workload began after this zxid. What is older was there at the recorder's first contact, and has no row."""
    faults: tuple[InjectedFault, ...] = ()
    """Ordered by ``began``; empty of a scenario, and of runs kept before this was noted."""
    feed: tuple[FeedEvent, ...] | None = None
    """The events that a consumer received from before the first write on, in their order; None: there was none."""
    feed_refusals: tuple[str, ...] = ()
    """Answers to it that were neither events nor 503."""
    schedules: tuple[TrailSchedule, ...] = ()
    """The temporary changes that have or had a schedule."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be."""

    rule: str
    """The promise that was broken, in a few words, the same for all of a kind."""
    detail: str
    """The finding, with ids by which it can be looked up."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


def save_run(run: Run, path: Path) -> None:
    """Write a run as one JSON document."""
    path.write_text(json.dumps(asdict(run)), encoding="utf-8")


def load_run(path: Path) -> Run:
    """Read what :func:`save_run` wrote."""
    given = json.loads(path.read_text(encoding="utf-8"))
    given["calls"] = [_call(members) for members in given["calls"]]
    given["intents"] = [_intent(members) for members in given["intents"]]
    given["outcomes"] = _rows(TrailOutcome, given["outcomes"])
    given["states"] = _rows(EntityState, given["states"])
    given["events"] = _rows(NodeEvent, given["events"])
    given["faults"] = tuple(
        InjectedFault(**fault | {"targets": tuple(fault["targets"])}) for fault in given.get("faults", ())
    )
    if given.get("feed") is not None:
        given["feed"] = tuple(map(_feed_event, given["feed"]))
    given["feed_refusals"] = tuple(given.get("feed_refusals", ()))
    given["schedules"] = tuple(_rows(TrailSchedule, given.get("schedules", ())))
    given["znodes"] = {name: Znode(**members) for name, members in given["znodes"].items()}
    given["mirrors"] = [Mirror(**members | {"warnings": tuple(members["warnings"])}) for members in given["mirrors"]]
    return Run(**given)


def _feed_event(members: dict[str, Any]) -> FeedEvent:
    entities = tuple(
        FeedState(each["id"], each["revision"], tuple(map(tuple, each["keys"]))) for each in members["entities"]
    )
    return FeedEvent(**members | {"entities": entities})


def _rows(kind: type[Any], rows: Iterable[dict[str, Any]]) -> list[Any]:
    return [kind(**members) for members in rows]


def _call(members: dict[str, Any]) -> Call:
    parts = tuple(map(_part, members["parts"]))
    results = tuple(PartResult(**item) for item in members["results"])
    return Call(**members | {"kind": Kind(members["kind"]), "parts": parts, "results": results})


def _intent(members: dict[str, Any]) -> TrailIntent:
    entities = tuple(
        TrailEntity(**item | {"keys": tuple(item["keys"]), "ops": tuple(item["ops"])}) for item in members["entities"]
    )
    return TrailIntent(**members | {"entities": entities, "reverts": tuple(members.get("reverts", ()))})
