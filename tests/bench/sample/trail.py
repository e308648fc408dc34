"""A trail of months, change by change, and the znodes that it leaves: the two agree by the way they are made."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from confplane.rollups.schemas import COMMITTED, OPEN, REJECTED
from confplane.services.changes.states import FREEZE_KEY, FREEZE_PATH
from confplane.services.ports.cluster_states import ENTITY as FREEZE
from confplane.services.ports.recording import FACET as WHOLE_NODE
from confplane.services.ports.recording import SOURCE
from confplane.services.ports.trail import EXTERNAL, EXTERNAL_PRINCIPAL
from tests.bench.sample.population import CONFIGS, QUOTAS, Member, members

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.sample.population import Key

Row = tuple[Any, ...]
"""A row of a frame, in the order of its schema; times are microseconds since 1970."""

DAYS: Final = 120
"""The days that a trail spans, roughly."""
_MS_OF_DAY: Final = 86_400_000
_WEIGHT_OF_HOUR: Final = (1, 1, 1, 1, 1, 2, 3, 5, 9, 12, 13, 11, 8, 11, 13, 12, 10, 8, 5, 3, 2, 2, 1, 1)
_ACTORS: Final = (
    "User:terraform", "User:ci", "User:admin", "User:alice", "User:portal", "User:bob", "User:CN=ops,O=Acme",
    "User:zoë", "User:<b>mallory</b>", "User:carol", "User:dave", "User:erin",
)  # fmt: skip
_REASONS: Final = (None, None, "more load", "incident 4711", "onboarding", "cost", "rollback")
_REFUSALS: Final = (
    (42, "request_percentage must be at least 0"),
    (40, "Invalid value"),
    (29, "Not authorized"),
    (41, "The transaction was refused"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The size and the seed of a made-up trail.

    Attributes:
        entities: How many there are.
        events: Rows of the trail; of registrations there are half as many besides.
        seed: The same plan and seed make the same rows.
        end: When the last event happens, about.
        recorded: Whether others' writes are recorded; where not, nobody else writes.
    """

    entities: int
    events: int
    seed: int = 1
    end: datetime = datetime(2026, 6, 1, tzinfo=UTC)
    recorded: bool = True

    @property
    def begin(self) -> datetime:
        """The time of the first event."""
        return self.end - timedelta(days=DAYS)


class Trail:
    """Makes the changes, and keeps the znodes that they leave."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._chosen = random.Random(f"trail {plan.seed}")  # noqa: S311 - made-up data
        self.members = members(plan.entities, self._chosen)
        self._busy = self.members.copy()
        self._chosen.shuffle(self._busy)
        self._ms = int(plan.begin.timestamp() * 1000)
        self.begin: int | None = None
        """The revision of the first change that committed."""
        self.zxid = 0x1_0000_0000
        self._rows: list[Row] = []
        for member in self.members:
            # Some were there before anything was recorded. Their users lie above them.
            if self._chosen.random() < 0.25:
                self.zxid += 1
                self._create(member, {key.name: self._value(key) for key in self._some_keys(member)})
        self.since = self.zxid
        """The revision at which the recorder had taken all that was there as it was."""

    @property
    def now(self) -> datetime:
        """The time of the last event."""
        return datetime.fromtimestamp(self._ms / 1000, UTC)

    def rows(self) -> Iterator[Row]:
        """Yield the rows of ``CHANGES``, in the order in which they were written, all but for a few."""
        made, events = 0, self.plan.events if self.members else 0
        step = 2 * DAYS * _MS_OF_DAY / max(1, events)
        mean = sum(_WEIGHT_OF_HOUR) / len(_WEIGHT_OF_HOUR)
        while made < events:
            # The wanted mean holds over a day: busy hours have more events, each after less time.
            busyness = _WEIGHT_OF_HOUR[self._ms // 3_600_000 % 24] / mean
            gap = step * self._chosen.random() / busyness
            self._ms += max(1, int(min(gap, _MS_OF_DAY)))
            self._event(room=events - made, is_late=events - made < 2 + events // 500)
            made += len(self._rows)
            yield from self._rows
            self._rows.clear()

    # -- one event

    def _event(self, *, room: int, is_late: bool) -> None:
        draw = self._chosen.random()
        if draw < 0.0005:
            self._freeze()
        elif draw < 0.03:
            self._batch(min(room, 2 + int(4 * self._chosen.random())))
        elif draw < 0.08:
            self._external(self._member())
        elif draw < 0.09 and self.plan.recorded:
            self._unnoticed(self._member())
        else:
            member = self._member()
            if (
                member.config == {}
                and member.live == 0
                and CONFIGS not in member.keys_of
                and self._chosen.random() < 0.3
            ):
                self._compact(member)
            elif is_late and self._chosen.random() < 0.2:
                self._unfinished(member, OPEN)
            elif self._chosen.random() < 0.04:
                self._unfinished(member, REJECTED)
            else:
                self._own([member])

    def _member(self) -> Member:
        """Choose one: a few are changed all the time, and most hardly ever."""
        count = len(self._busy)
        if self._chosen.random() < 0.6:
            return self._busy[int(count ** self._chosen.random()) - 1]
        return self._busy[int(count * self._chosen.random())]

    def _batch(self, size: int) -> None:
        found = {member.path: member for member in (self._member() for _ in range(size))}
        self._own(list(found.values()))

    def _own(self, batch: list[Member]) -> None:
        """Commit a change made through the service, of one entity or of several at once."""
        self._step()
        change, created, concluded = self._new_change()
        for position, member in enumerate(batch):
            facet, keys, after = self._edit(member)
            before, read = member.config or {}, (member.version, member.czxid)
            was_there = member.config is not None
            self._put(member, after)
            self._rows.append(
                self._row(
                    change, created, concluded, member, position=position, facet=facet, keys=keys,
                    read=read if was_there else None, before=before, after=after,
                )
            )  # fmt: skip

    def _compact(self, member: Member) -> None:
        self._step()
        change, created, concluded = self._new_change()
        read = (member.version, member.czxid)
        self._remove(member)
        self._rows.append(
            self._row(change, created, concluded, member, facet=QUOTAS, keys=[], read=read, before={}, after={})
        )

    def _unfinished(self, member: Member, outcome: str) -> None:
        """A change that was refused after its intent, or has no outcome yet; the znode stays as it is."""
        change, created, concluded = self._new_change()
        facet, keys, after = self._edit(member, remember=False)
        before, read = member.config or {}, (member.version, member.czxid)
        self._rows.append(
            self._row(
                change, created, concluded, member, facet=facet, keys=keys,
                read=read if member.config is not None else None, before=before, after=after,
                outcome=outcome,
            )
        )  # fmt: skip

    def _external(self, member: Member) -> None:
        """A write past the service, recorded a second later, or days later where nobody looked."""
        if not self.plan.recorded:
            return
        self._step()
        chosen = self._chosen
        before, was_there = dict(member.config or {}), member.config is not None
        read = (member.version, member.czxid) if was_there else None
        writes = max(1, int(chosen.random() * 5) - 1)
        draw = chosen.random()
        keys: list[str]
        if was_there and draw < 0.25 and member.live == 0 and CONFIGS not in member.keys_of:
            writes = 1
            self._remove(member)
            if draw < 0.08:
                # Gone and back again before anybody looked: one change to who did.
                writes = 2
                self._step()
                self._create(member, {key.name: self._value(key) for key in self._some_keys(member)})
                if member.config == before:
                    # What comes back as it was is no change, and the znode would be one that nobody knows.
                    writes = 3
                    self._step()
                    self._put(member, self._edit(member)[2])
        else:
            _, _, after = self._edit(member)
            if member.foreign is not None and chosen.random() < 0.3:
                after[member.foreign] = None
            self._put(member, after)
            for _ in range(writes - 1):
                self._step()
                self._put(member, after)
        after = dict(member.config or {})
        keys = [
            key
            for key in sorted({*before, *after})
            if (key in before, before.get(key)) != (key in after, after.get(key))
        ]
        if not keys and was_there == (member.config is not None):
            return
        if not keys and not before and not after:
            return
        late = int(chosen.random() * 2 * _MS_OF_DAY) if chosen.random() < 0.05 else 1000 + int(chosen.random() * 1000)
        recorded = self._ms + late
        self._rows.append(
            (
                self._uuid(self._ms), 1, 0, EXTERNAL, self._ms * 1000, recorded * 1000, EXTERNAL_PRINCIPAL, SOURCE, "recorder",
                None, None, writes, member.entity_id, WHOLE_NODE, member.path, *(read or (None, None)), keys, "[]",
                before, after, COMMITTED, self.zxid, self._ms * 1000, None if member.config is None else member.version,
                None, None, recorded * 1000,
            )
        )  # fmt: skip

    def _unnoticed(self, member: Member) -> None:
        """A znode written as it was: the recorder moves its state, and there is nothing to tell."""
        if member.config is not None:
            self._step()
            self._put(member, dict(member.config))

    def _freeze(self) -> None:
        self._step()
        change, created, concluded = self._new_change()
        self._rows.append(
            (
                change, 1, 0, "change", created, created + 3000, "User:admin", "cli", "freeze", "maintenance", None,
                None, FREEZE, FREEZE, FREEZE_PATH, 3, None, [FREEZE_KEY], '[{"key":"frozen","value":"maintenance"}]',
                {FREEZE_KEY: None}, {FREEZE_KEY: "maintenance"}, COMMITTED, self.zxid, self._ms * 1000, 4, None, None,
                concluded,
            )
        )  # fmt: skip

    # -- parts of an event

    def _edit(self, member: Member, *, remember: bool = True) -> tuple[str, list[str], dict[str, str | None]]:
        """Return a facet, which of its keys differ, and the whole map after the change."""
        chosen, before = self._chosen, member.config or {}
        if member.undo is not None and chosen.random() < 0.08:
            key, value, was_there = member.undo
            after = {name: text for name, text in before.items() if name != key.name}
            if was_there:
                after[key.name] = value
            if after != before:
                return key.facet, [key.name], after
        facets = member.facets
        facet = facets[int(len(facets) * chosen.random())]
        keys = member.keys_of[facet]
        after, changed = dict(before), []
        first, count = int(len(keys) * chosen.random()), 1 if chosen.random() < 0.75 else 2
        for key in (keys[first], keys[first - 1])[: min(count, len(keys))]:
            if key.name in after and chosen.random() < 0.3:
                del after[key.name]
            else:
                after[key.name] = self._other_value(key, before)
            changed.append(key)
        if remember:
            key = changed[0]
            member.undo = (key, before.get(key.name), key.name in before)
        return facet, sorted(key.name for key in changed), after

    def _other_value(self, key: Key, config: dict[str, str | None]) -> str | None:
        values = key.values
        # The first ones are the usual ones.
        index = int(len(values) * self._chosen.random() ** 2)
        if key.name in config and config[key.name] == values[index]:
            index = (index + 1) % len(values)
        return values[index]

    def _value(self, key: Key) -> str | None:
        return key.values[int(len(key.values) * self._chosen.random() ** 2)]

    def _some_keys(self, member: Member) -> list[Key]:
        first = int(len(member.keys) * self._chosen.random())
        return list(member.keys[first : first + 1 + int(3 * self._chosen.random())])

    def _step(self, milliseconds: int = 1) -> None:
        self.zxid += 1 + int(self._chosen.random() * 3)
        self._ms += milliseconds

    def _put(self, member: Member, config: dict[str, str | None]) -> None:
        if member.config is None:
            self._create(member, config)
            return
        for name, value in config.items():
            if value is None and (name not in member.config or name not in member.fingerprints):
                member.fingerprints[name] = f"{self._chosen.getrandbits(64):016x}"
        member.config = config
        member.version += 1
        member.mzxid, member.mtime = self.zxid, self._ms

    def _create(self, member: Member, config: dict[str, str | None]) -> None:
        parent = member.parent
        if parent is not None:
            parent.live += 1
            if parent.config is None:
                self._create(parent, {})
        member.config, member.version = config, 0
        member.fingerprints = {
            name: f"{self._chosen.getrandbits(64):016x}" for name, value in config.items() if value is None
        }
        member.czxid = member.mzxid = self.zxid
        member.mtime = self._ms

    def _remove(self, member: Member) -> None:
        if member.parent is not None:
            member.parent.live -= 1
        member.config, member.undo = None, None
        member.mzxid = self.zxid
        member.fingerprints = {}

    def _new_change(self) -> tuple[str, int, int]:
        """Return an id, when it was made and when its outcome was written, in microseconds."""
        chosen = self._chosen
        began = self._ms - int(chosen.random() * (20_000 if chosen.random() < 0.01 else 40))
        settled = int(chosen.random() * _MS_OF_DAY) if chosen.random() < 0.003 else 2
        return self._uuid(began), began * 1000, (self._ms + settled) * 1000

    def _uuid(self, milliseconds: int) -> str:
        bits = self._chosen.getrandbits(74)
        text = f"{milliseconds:012x}7{bits >> 62:03x}{0x8 | bits >> 60 & 3:x}{bits & (1 << 60) - 1:015x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _row(  # noqa: PLR0913 - the parts of a row
        self, change: str, created: int, concluded: int, member: Member, *, facet: str, keys: list[str],
        read: tuple[int, int] | None, before: dict[str, str | None], after: dict[str, str | None],
        outcome: str = COMMITTED, position: int = 0,
    ) -> Row:  # fmt: skip
        bits = int(change[-6:], 16)  # the same for all rows of a batch
        committed = outcome == COMMITTED
        if committed and self.begin is None:
            self.begin = self.zxid
        code, error = _REFUSALS[bits % len(_REFUSALS)] if outcome == REJECTED else (None, None)
        return (
            change, 1, position, "change", created, created + 3000,
            _ACTORS[int(len(_ACTORS) * (bits / 0x1000000) ** 2)], "api" if bits % 3 else "cli", change[-12:],
            _REASONS[bits % len(_REASONS)], f"OPS-{bits % 5000}" if bits % 4 == 0 else None, None, member.entity_id,
            facet, member.path, *(read or (None, None)), keys,
            _ops(keys, after),
            before, after, outcome, self.zxid if committed else None, self._ms * 1000 if committed else None,
            (None if member.config is None else member.version) if committed else None,
            code, error, None if outcome == OPEN else concluded,
        )  # fmt: skip

    # -- what is left

    def znodes(self) -> Iterator[Row]:
        """Yield the rows of ``ZNODES``."""
        for each in self.members:
            if each.config is not None:
                prints = {name: each.fingerprints[name] for name, value in each.config.items() if value is None}
                yield (
                    "/config", each.path, each.entity_id, each.config, prints, each.version, each.czxid, each.mzxid,
                    each.mtime * 1000, None, False, False,
                )  # fmt: skip

    def states(self) -> Iterator[Row]:
        """Yield the rows of ``STATES``."""
        if not self.plan.recorded:
            return
        for each in self.members:
            if each.config is not None:
                yield "/config", each.entity_id, True, each.czxid, each.version, each.mzxid, each.config
            elif each.mzxid:
                yield "/config", each.entity_id, False, 0, 0, each.mzxid, {}


def _ops(keys: list[str], after: dict[str, str | None]) -> str:
    """Return the ops of a change as the trail has them; neither keys nor values here need escaping."""
    return f"[{','.join([_op(key, after) for key in keys])}]"


def _op(key: str, after: dict[str, str | None]) -> str:
    if key not in after:
        return f'{{"key":"{key}","op":"DELETE","value":null}}'
    start, value = f'{{"key":"{key}","op":"SET","value":', after[key]
    return f'{start}null,"secret":true}}' if value is None else f'{start}"{value}"}}'
