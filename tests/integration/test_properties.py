"""Alter, then describe: any sequence of alters leaves what a dictionary would hold, and every filter finds its part."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from confplane.domain.entities import Entity
from tests.support.facets import ConfplaneClient

if TYPE_CHECKING:
    from tests.support.service import Service

NAME = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=8).filter(
    lambda name: name not in {".", ".."}
) | st.sampled_from(["<default>", "a/b", "CN=a, O=b c*~+%", "%41", "日本𝄞"])
MAYBE = st.none() | NAME
QUOTAS: dict[str, st.SearchStrategy[Any]] = {
    "producer_byte_rate": st.integers(0, 2**63 - 1),
    "consumer_byte_rate": st.integers(0, 2**63 - 1),
    "request_percentage": st.floats(0, 1e18),
    "controller_mutation_rate": st.floats(0, 1e6) | st.integers(0, 2**53),
}
OPS = st.fixed_dictionaries({}, optional={key: st.none() | values for key, values in QUOTAS.items()}).filter(bool)


def held_as(key: str, value: Any) -> Any:
    """LONGs are exact; a DOUBLE is the number that its digits read as, however they are written."""
    return value if key.endswith("byte_rate") else float(value)


def entity(run: str, user: str | None, client_id: str | None, kind: int) -> Entity:
    """An entity of this run alone: names carry its mark, and defaults are left to their own tests."""
    if kind == 0:
        return Entity.of(user=f"{run}{user}")
    if kind == 1:
        return Entity.of(client_id=f"{run}{client_id}")
    return Entity.of(user=f"{run}{user}", client_id=None if client_id is None else f"{run}{client_id}")


ALTERS = st.lists(st.tuples(NAME, MAYBE, st.integers(0, 2), OPS), min_size=1, max_size=8)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(alters=ALTERS, atomic=st.booleans())
def test_alter_then_describe(service: Service, alters: list[Any], *, atomic: bool) -> None:
    asyncio.run(_alter_then_describe(service, alters, atomic=atomic))


async def _alter_then_describe(service: Service, alters: list[Any], *, atomic: bool) -> None:
    run = uuid.uuid4().hex[:8]
    model: dict[Entity, dict[str, Any]] = {}
    async with ConfplaneClient(service.url, token=service.token) as client:
        for user, client_id, kind, ops in alters:
            of = entity(run, user, client_id or user if kind == 1 else client_id, kind)
            await client.alter("client-quotas", [(of, ops)], atomic=atomic)
            held = model.setdefault(of, {})
            for key, value in ops.items():
                if value is None:
                    held.pop(key, None)
                else:
                    held[key] = held_as(key, value)
        for of, held in model.items():
            components = [
                {"entityType": kind, "matchType": "default"}
                if name is None
                else {"entityType": kind, "matchType": "exact", "match": name}
                for kind, name in of.components
            ]
            described = await client.describe("client-quotas", components, strict=True)
            values = [
                {item["key"]: held_as(item["key"], item["value"]) for item in entry["values"]}
                for entry in described.body["entries"]
            ]
            assert values == ([held] if held else [])
            if held:
                assert described.body["entries"][0]["entity"] == [
                    {"entityType": kind, "entityName": name} for kind, name in of.components
                ]
                got = (await client.get("client-quotas", of)).body
                assert got["id"] == of.id
                assert {key: held_as(key, value) for key, value in got["quotas"].items()} == held
        everything = await client.describe("client-quotas")
        found = [entry for entry in everything.body["entries"] if run in str(entry["entity"])]
        assert len(found) == sum(bool(held) for held in model.values())
