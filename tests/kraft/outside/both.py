"""Clients and external writers of the same keys of a cluster at once, each with values of their own.

A value says who wrote it, and none is written twice. A key is removed by clients alone, externally alone, or by
nobody, so that removals say it too. Clients write through Confplane; external
writers by Kafka's AdminClient and by the wire protocol.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confplane.client.errors import ClientError, ProblemError
from confplane.domain.entities import Entity
from confplane.kraft.views import ConfigResourceType, Resource
from confplane.kraft.wire.errors import KraftError
from tests.support.kraft_writer import KraftWriter, RefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from tests.interop.admin import Admin
    from tests.kraft.outside.trail_check import Row
    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service

_OTHERS_FROM: Final = 2_000_000
_GROUPS: Final = (45_000, 53_000, 60_000)
"""The first value of clients, the first external one, and the one after them: brokers bound the key."""
_REMOVALS: Final = 0.25
_GROUP_KEY: Final = "consumer.session.timeout.ms"
_TYPES: Final = {"topic": "TOPIC", "group": "GROUP", "client-metrics": "CLIENT_METRICS", "broker": "BROKER"}


@dataclass(frozen=True, slots=True)
class Key:
    """A key of an entity.

    Attributes:
        entity: The entity.
        name: The key.
        removed_by: "callers", "others", or "" for a key that nobody removes.
        by_callers: Callers set it too.
    """

    entity: Entity
    name: str
    removed_by: str = ""
    by_callers: bool = True

    @property
    def of_quotas(self) -> bool:
        """True for a quota."""
        return self.entity.types[0].value not in _TYPES

    @property
    def components(self) -> dict[str, str | None]:
        """The entity as requests have it."""
        return {kind.value: name for kind, name in self.entity.components}

    @property
    def resource(self) -> tuple[str, str]:
        """The config resource."""
        ((kind, name),) = self.entity.components
        return _TYPES[kind.value], name or ""


def keys(prefix: str, brokers: Sequence[int]) -> list[Key]:
    """Return the keys of entities that are named by a prefix, and of the brokers."""
    users = [Entity.of(user=f"{prefix}-{name}") for name in ("a", "b", "\u00fc %")]
    quotas = [*users, Entity.of(user=f"{prefix}-a", client_id="x"), Entity.of(client_id=f"{prefix}-c")]
    found = [Key(entity, "producer_byte_rate", "callers") for entity in quotas]
    found += [Key(entity, "consumer_byte_rate", "others") for entity in quotas]
    found += [Key(entity, "controller_mutation_rate", "others", by_callers=False) for entity in users]
    for name in ("s", "t"):
        topic = Entity.of(topic=f"{prefix}-{name}")
        found += [Key(topic, "retention.ms", "callers"), Key(topic, "segment.ms", "others"), Key(topic, "flush.ms")]
        found.append(Key(topic, "delete.retention.ms", "others", by_callers=False))
    found += [
        Key(Entity.of(group=f"{prefix}-g"), _GROUP_KEY, "others"),
        Key(Entity.from_components([("client-metrics", f"{prefix}-m")]), "interval.ms", "callers"),
        Key(Entity.of(broker=None), "log.retention.ms", "others"),
    ]
    found += [Key(Entity.of(broker=str(each)), "log.retention.ms", "callers") for each in brokers[:2]]
    return found


class Values:
    """Fresh values, and whose they are."""

    def __init__(self, chosen: Sequence[Key]) -> None:
        self._numbers = {(mine, group): itertools.count() for mine in (True, False) for group in (True, False)}
        self._removed_by = {(each.entity.id, each.name): each.removed_by for each in chosen}

    def fresh(self, key: Key, *, ours: bool) -> int:
        """Return a value that nobody wrote yet."""
        group = key.name == _GROUP_KEY
        first = _GROUPS[not ours] if group else _OTHERS_FROM if not ours else 1_000_000
        value = first + next(self._numbers[ours, group])
        assert not group or value < _GROUPS[2 - ours], "no value is left"
        return value

    def is_ours(self, entity_id: str, key: str, value: str | None) -> bool:
        """Say whether a caller wrote a value, or removed a key."""
        if value is None:
            return self._removed_by[entity_id, key] == "callers"
        return float(value) < (_GROUPS[1] if key == _GROUP_KEY else _OTHERS_FROM)


@dataclass(slots=True)
class Asked:
    """One alter by a caller.

    Attributes:
        reason: Of it alone.
        values: Entity id and key -> value.
        answer: "done", "refused", or "" where no answer came.
    """

    reason: str
    values: dict[tuple[str, str], int | None]
    answer: str = ""


class Callers:
    """Callers of a service's processes.

    Args:
        services: The processes.
        chosen: The keys.
        values: Their values.
        seed: Of their choices.

    Attributes:
        asked: Their alters.
    """

    def __init__(self, services: Sequence[Service], chosen: Sequence[Key], values: Values, seed: int) -> None:
        self._services = services
        self._keys = [each for each in chosen if each.by_callers]
        self._values = values
        self._seed = seed
        self.asked: list[Asked] = []

    async def write(self, stopped: asyncio.Event) -> None:
        """Write until stopped, at each process."""
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(each.client(timeout_s=30.0)) for each in self._services]
            await asyncio.gather(
                *(
                    _until(stopped, random.Random(f"{self._seed} caller {number}"), self._step(client))  # noqa: S311
                    for number, client in enumerate(clients)
                )
            )

    async def write_each(self, client: ConfplaneClient) -> None:
        """Write each key: the quotas last, in one request."""
        values: dict[Key, int | None] = {each: self._values.fresh(each, ours=True) for each in self._keys}
        for each, value in values.items():
            if not each.of_quotas:
                await self._alter(client, {each: value})
        await self._alter(client, {each: value for each, value in values.items() if each.of_quotas})

    def _step(self, client: ConfplaneClient) -> Callable[[random.Random], Awaitable[None]]:
        async def step(dice: random.Random) -> None:
            first = dice.choice(self._keys)
            chosen = [first]
            if first.of_quotas and dice.random() < 0.3:
                chosen += dice.sample([each for each in self._keys if each.of_quotas and each != first], 2)
            values: dict[Key, int | None] = {
                each: None
                if each.removed_by == "callers" and dice.random() < _REMOVALS
                else self._values.fresh(each, ours=True)
                for each in chosen
            }
            await self._alter(client, values)

        return step

    async def _alter(self, client: ConfplaneClient, values: Mapping[Key, int | None]) -> None:
        asked = Asked(
            f"alter {len(self.asked)}", {(each.entity.id, each.name): value for each, value in values.items()}
        )
        self.asked.append(asked)
        try:
            await self._send(client, asked.reason, values)
        except ProblemError as error:
            # Of a server's error the end is not known here. A process that has just started knows no release.
            asked.answer = "refused" if error.status < 500 else ""
            assert error.status in {409, 503} or "this cluster has Kafka 3.9" in str(error), error
        except ClientError:
            pass
        else:
            asked.answer = "done"

    async def _send(self, client: ConfplaneClient, reason: str, values: Mapping[Key, int | None]) -> None:
        first = next(iter(values))
        params = {"reason": reason}
        if first.of_quotas:
            entries: dict[str, dict[str, Any]] = {}
            for key, value in values.items():
                entity = [{"entityType": kind, "entityName": name} for kind, name in key.components.items()]
                entry = entries.setdefault(key.entity.id, {"entity": entity, "ops": []})
                entry["ops"].append(
                    {"key": key.name, "remove": True} if value is None else {"key": key.name, "value": value}
                )
            body: dict[str, Any] = {"entries": list(entries.values()), "atomic": True}
            await client.request("POST", "client-quotas:alter", json=body, params=params)
            return
        (value,) = values.values()
        kind, name = first.resource
        op = {"name": first.name, "configOperation": "SET" if value is not None else "DELETE"}
        if value is not None:
            op["value"] = str(value)
        body = {"resources": [{"resourceType": kind, "resourceName": name, "configs": [op]}]}
        await client.request("POST", "configs:incrementalAlter", json=body, params=params)

    def faults(self, changes: Sequence[Mapping[str, Any]], rows: Sequence[Row]) -> list[str]:
        """Return the alters whose answers and rows differ; each has one outcome."""
        made: dict[str, list[Mapping[str, Any]]] = {}
        for each in changes:
            if each["kind"] == "change":
                made.setdefault(each["reason"], []).append(each)
        by_name: dict[str, list[Row]] = {}
        for row in rows:
            by_name.setdefault(row.name, []).append(row)
        found = []
        for asked in self.asked:
            own = made.pop(asked.reason, [])
            committed = [each for each in own if each["outcome"] == "committed"]
            values = {
                (row.entity, key): None if key not in row.after else int(float(row.after[key]))
                for each in committed
                for row in by_name[each["changeId"]]
                for key in row.changed_keys
            }
            # Removals of absent keys have no effect.
            wanted = {at: value for at, value in asked.values.items() if value is not None or at in values}
            if len(committed) > 1 or values not in ([wanted, {}] if asked.answer == "" else [wanted]):
                if asked.answer == "refused" and not committed:
                    continue
                found.append(f"{asked}: the rows have {values}, of {[each['changeId'] for each in committed]}")
            elif asked.answer == "refused" and committed:
                found.append(f"{asked}: it was committed all the same")
        return [*found, *(f"a change that nobody asked for: {reason}" for reason in made)]


class ExternalWriters:
    """External writers to the cluster: one by Kafka's AdminClient, one by the wire protocol.

    Args:
        admin: The AdminClient.
        bootstrap: A broker.
        chosen: The keys.
        values: Their values.
        seed: Of their choices.
    """

    def __init__(self, admin: Admin, bootstrap: str, chosen: Sequence[Key], values: Values, seed: int) -> None:
        self._admin = admin
        self._bootstrap = bootstrap
        self._keys = chosen
        self._values = values
        self._seed = seed
        self.written = 0

    async def first(self, topics: Iterable[str]) -> None:
        """Make the topics, and set half of the keys."""
        await asyncio.to_thread(self._admin.create_topics, *topics)
        for each in self._keys[::2]:
            outcome = await self._by_admin({each: self._values.fresh(each, ours=False)})
            assert not outcome["code"], outcome

    async def write(self, stopped: asyncio.Event) -> None:
        """Write until stopped."""
        dice = [random.Random(f"{self._seed} {name}") for name in ("admin", "wire")]  # noqa: S311 - a seed's choices
        await asyncio.gather(_until(stopped, dice[0], self._admin_step), _until(stopped, dice[1], self._wire_step))

    async def write_each(self) -> None:
        """Set each key once."""
        for each in self._keys:
            outcome = await self._by_admin({each: self._values.fresh(each, ours=False)})
            assert not outcome["code"], outcome

    async def _admin_step(self, dice: random.Random) -> None:
        key = dice.choice(self._keys)
        await self._by_admin({key: self._value(key, dice)})

    async def _wire_step(self, dice: random.Random) -> None:
        # A broker's own configs go to that broker, which the AdminClient does.
        here = [each for each in self._keys if each.entity.types[0].value != "broker"]
        chosen = dice.sample(here, 2)
        try:
            async with KraftWriter(self._bootstrap) as writer:
                for _ in range(5):
                    for key in chosen:
                        await _by_wire(writer, key, self._value(key, dice))
                        self.written += 1
                    await asyncio.sleep(dice.choice((0.0, 0.1, 0.6)))
        except (RefusedError, KraftError):
            await asyncio.sleep(0.2)  # the log says what was written

    def _value(self, key: Key, dice: random.Random) -> int | None:
        if key.removed_by == "others" and dice.random() < _REMOVALS:
            return None
        return self._values.fresh(key, ours=False)

    async def _by_admin(self, values: Mapping[Key, int | None]) -> Any:
        ((key, value),) = values.items()
        self.written += 1
        if key.of_quotas:
            op = (key.name, None if value is None else float(value))
            (outcome,) = await asyncio.to_thread(self._admin.alter_quotas, (key.components, [op]))
            return outcome
        op_ = (key.name, "DELETE", "") if value is None else (key.name, "SET", str(value))
        return await asyncio.to_thread(self._admin.alter_configs, *key.resource, [op_])


async def _by_wire(writer: KraftWriter, key: Key, value: int | None) -> None:
    if key.of_quotas:
        await writer.quotas((key.components, {key.name: value}))
    else:
        kind, name = key.resource
        given = {key.name: None if value is None else str(value)}
        await writer.configs((Resource(ConfigResourceType[kind], name), given))


async def _until(stopped: asyncio.Event, dice: random.Random, step: Callable[[random.Random], Awaitable[None]]) -> None:
    while not stopped.is_set():
        await step(dice)
        # Often close together, sometimes with polls in between.
        await asyncio.sleep(dice.choice((0.0, 0.1, 0.3, 0.8)))


async def clear(admin: Admin, chosen: Sequence[Key], topics: Iterable[str]) -> None:
    """Remove the keys and the topics, so that the cluster is as before."""
    for each in chosen:
        if each.of_quotas:
            await asyncio.to_thread(admin.alter_quotas, (each.components, [(each.name, None)]))
        elif each.entity.types[0].value != "topic":
            await asyncio.to_thread(admin.alter_configs, *each.resource, [(each.name, "DELETE", "")])
    for name in topics:
        await asyncio.to_thread(admin.delete_topic, name)
