"""The leader's report on its observation of a cluster. All processes read it from ``/confplane/observation``.

The report is JSON. It is replaced every few seconds and is not part of the trail. Its fields are named like the JSON
members, which are a stored format.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.texts import clipped
from confplane.services.ports.kafka import EntityTypePermission, KraftEntityType

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: Final = 100
"""The greatest number of names in a list of the report."""
_LENGTH: Final = 200
"""Characters of a name or a reason, at most."""
_MOST: Final = 90_000
"""Bytes of a report, at most; lists of names are cut beyond."""
_TEXT: Final = 800
"""Characters of a problem, at most: all problems together are shorter than a report, whatever their characters."""
_VERSION: Final = 1
_TEXTS: Final = ("problem", "log_problem", "reason")
"""The members with a broker's words, which may be of any length."""
_NEW_LISTS: Final = ("denied", "ineffective")
"""The lists of names that earlier releases do not know."""
_ELIGIBLE_REPLICAS: Final = "eligible_replicas"
"""A member of the list ``unmanaged`` of the brokers. Earlier releases read no report with a member that they do not
know, but ignore further members of a list of names."""


@dataclass(frozen=True, slots=True)
class ListedNames:
    """Names with reasons: all of them counted, the first of them listed."""

    count: int = 0
    first: tuple[tuple[str, str], ...] = ()
    """Names in order, each with its reason."""

    @classmethod
    def of(cls, reasons: Mapping[str, str]) -> ListedNames:
        """Return names out of a map to their reasons."""
        first = sorted(reasons)[:NAMES]
        return cls(len(reasons), tuple((name[:_LENGTH], reasons[name][:_LENGTH]) for name in first))


@dataclass(frozen=True, slots=True)
class EntityTypeReport:
    """The observation of one entity type."""

    permission: EntityTypePermission
    """The cluster's permission: :attr:`EntityTypePermission.READ_ONLY` if the entity type is observed."""
    reason: str = ""
    """The missing right, in a sentence; empty if no right is missing."""
    observed_at: int | None = None
    """The start of the last complete poll that counted, milliseconds since the epoch. None if there is none yet."""
    offset: int | None = None
    """Metadata offset at the start of the last poll that was applied completely: a lower bound for how current the
    mirror is."""
    entities: int = 0
    """The entities with declared configs."""
    unmanaged: ListedNames = field(default_factory=ListedNames)
    """Entities and keys that ZooKeeper can't hold."""
    hidden: ListedNames = field(default_factory=ListedNames)
    """Keys whose values are not followed: passwords, and references to config providers."""
    problem: str = ""
    """The reason why the last poll did not count; empty if it did."""
    denied: ListedNames = field(default_factory=ListedNames)
    """Topics and groups whose configs the login may not describe."""
    ineffective: ListedNames = field(default_factory=ListedNames)
    """Keys that are set for a broker and that it does not use."""


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """The delivery of client changes to the cluster."""

    pending: int = 0
    """Entities with changes that the cluster has not applied yet, as far as known."""
    waiting_ms: int = 0
    """Milliseconds for which the first of them has waited."""
    unknown: ListedNames = field(default_factory=ListedNames)
    """Entities whose values were sent without an answer; they are sent again."""
    refused: ListedNames = field(default_factory=ListedNames)
    """Entities whose values the cluster refused, each with Kafka's words."""
    held: ListedNames = field(default_factory=ListedNames)
    """Entities that are blocked: by an absent broker, a missing right, or a topic that must be polled first."""
    contested: ListedNames = field(default_factory=ListedNames)
    """Keys that external writers set again and again, so that they are no longer put back."""
    extra: ListedNames = field(default_factory=ListedNames)
    """Keys that external writers set and that were never set here. Listed only under ``enforce``."""
    problem: str = ""
    """The reason why nothing can be sent now; empty if sending is possible."""
    rested: int | None = None
    """The version of the freeze for which deliveries are quiesced: no request is in flight, and none begins before the
    thaw. None if something may be sent."""


@dataclass(frozen=True, slots=True)
class ObservationReport:
    """The observation of a cluster."""

    at: int
    """The time of the report, milliseconds since the epoch by the leader's clock."""
    process: str
    """The writer node of the leader."""
    cluster_id: str = ""
    release: str = ""
    """The release of the cluster's oldest broker; empty before the first contact."""
    metadata_version: str = ""
    brokers: tuple[int, ...] = ()
    eligible_replicas: bool | None = None
    """True if the cluster keeps eligible leader replicas (KIP-966). None: unknown. It needs the report on brokers."""
    problem: str = ""
    """The reason why the cluster is not observed now; empty if polls succeed."""
    problem_since: int | None = None
    paused: bool = False
    moved: int = -1
    """The metadata offset that a poll must have reached to count: an earlier poll changed configs there."""
    log_offset: int | None = None
    """The offset up to which the metadata log was followed; None: it was not."""
    log_at: int | None = None
    """The time at which the log was read last."""
    log_problem: str = ""
    """The reason why the log is not followed although the settings name controllers; empty if it is followed."""
    areas: Mapping[KraftEntityType, EntityTypeReport] = field(default_factory=dict)
    applying: ApplyReport | None = None
    """The delivery of changes. None if the target accepts no client changes."""

    @property
    def followed_offset(self) -> int | None:
        """The offset up to which the metadata log is followed; None if it is not followed now."""
        return None if self.log_problem else self.log_offset

    def encode(self) -> bytes:
        """Return the report for the znode, :data:`_MOST` bytes at most; texts and lists are cut."""
        shown = self._members()
        parts: list[dict[str, Any]] = [shown, *shown["areas"].values(), shown.get("applying", {})]
        for part in parts:
            part.update({name: clipped(part[name], _TEXT) for name in _TEXTS if name in part})
        lists = [each for part in parts[1:] for each in part.values() if isinstance(each, dict)]
        while True:
            data = json.dumps(shown, separators=(",", ":"), ensure_ascii=False).encode()
            if len(data) <= _MOST:
                return data
            for each in lists:
                each["first"] = each["first"][: len(each["first"]) // 2]

    def _members(self) -> dict[str, Any]:
        """Return the members. Earlier releases read no report with one that they do not know."""
        shown = {"version": _VERSION, **asdict(self)}
        if not self.log_problem:
            del shown["log_problem"]
        if self.applying is None:
            del shown["applying"]
        areas = shown["areas"]
        for area in areas.values():
            for name in _NEW_LISTS:
                if not area[name]["count"]:
                    del area[name]
        if shown.pop(_ELIGIBLE_REPLICAS) is not None and KraftEntityType.BROKERS in areas:
            areas[KraftEntityType.BROKERS]["unmanaged"][_ELIGIBLE_REPLICAS] = self.eligible_replicas
        return shown


@lru_cache(maxsize=16)
def parse(data: bytes | None) -> ObservationReport | None:
    """Parse a report. Returns None if there is none, or if this version does not know its format.

    The latest reports are cached, because every response may need one.
    """
    if not data:
        return None
    try:
        given: dict[str, Any] = json.loads(data)
        if given.pop("version") != _VERSION:
            return None
        brokers = given["areas"].get(KraftEntityType.BROKERS.value)
        eligible_replicas = None if brokers is None else brokers["unmanaged"].get(_ELIGIBLE_REPLICAS)
        areas = {KraftEntityType(entity_type): _entity_type(each) for entity_type, each in given.pop("areas").items()}
        applying = given.pop("applying", None)
        return ObservationReport(
            **{**given, "brokers": tuple(given["brokers"]), "areas": areas},
            eligible_replicas=eligible_replicas,
            applying=None if applying is None else ApplyReport(**_with_names(applying)),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _entity_type(given: dict[str, Any]) -> EntityTypeReport:
    return EntityTypeReport(**{**_with_names(given), "permission": EntityTypePermission(given["permission"])})


def _with_names(given: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a part, with the lists of names among them parsed."""
    return {
        name: ListedNames(each["count"], tuple((listed, reason) for listed, reason in each["first"]))
        if isinstance(each, dict)
        else each
        for name, each in given.items()
    }
