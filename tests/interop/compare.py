"""Asks Kafka and Confplane the same and gives the answers one shape."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from confplane.client import ProblemError
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tests.interop.admin import Admin
    from tests.support.facets import ConfplaneClient

BOUND_S = 60.0
"""Seconds within which the other side must see a change."""

Quotas = dict[tuple[tuple[str, str | None], ...], dict[str, float]]


async def until_equal(left: Callable[[], Awaitable[Any]], right: Callable[[], Awaitable[Any]], what: str = "") -> Any:
    """Ask both until their answers are equal, and return it. The second of two answers is always the later one."""
    found: list[Any] = []

    async def equal() -> bool:
        found[:] = [await left(), await right()]
        return bool(found[0] == found[1])

    await until(equal, BOUND_S, why=lambda: f"{what}:\n" + "\n".join(differences(*found)), pause_s=0.1)
    return found[0]


def differences(one: Any, two: Any) -> list[str]:
    """Say what differs between two maps, a line each."""
    if not (isinstance(one, dict) and isinstance(two, dict)):
        return [f"{one!r} | {two!r}"]
    return [f"{key}: {one.get(key)!r} | {two.get(key)!r}" for key in {**one, **two} if one.get(key) != two.get(key)]


# ---------------------------------------------------------------- quotas


def exactly(entity: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """Return the components of a filter for one entity."""
    return [
        {"entityType": kind, "matchType": "default"}
        if name is None
        else {"entityType": kind, "matchType": "exact", "match": name}
        for kind, name in entity.items()
    ]


async def our_quotas(
    client: ConfplaneClient, components: Sequence[Mapping[str, Any]] = (), *, strict: bool = False
) -> Quotas:
    """Describe client quotas by Confplane: entity to quotas."""
    body = (await client.describe("client-quotas", components, strict=strict)).body
    assert not body.get("skipped"), body
    return {
        _names({item["entityType"]: item["entityName"] for item in entry["entity"]}): {
            item["key"]: float(item["value"]) for item in entry["values"]
        }
        for entry in body["entries"]
    }


async def their_quotas(admin: Admin, components: Sequence[Mapping[str, Any]] = (), *, strict: bool = False) -> Quotas:
    """Describe client quotas by Kafka: entity to quotas."""
    answer = await asyncio.to_thread(admin.describe_quotas, components, strict=strict)
    assert answer["code"] == 0, answer
    return {_names(entry["entity"]): entry["quotas"] for entry in answer["entries"]}


def _names(entity: Mapping[str, str | None]) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted(entity.items(), key=lambda item: item[0]))


# ---------------------------------------------------------------- topics and brokers


async def our_configs(client: ConfplaneClient, kind: str, name: str) -> dict[str, Any]:
    """Describe a topic or broker by Confplane as it is in ZooKeeper, in the form of :meth:`Admin.describe_configs`.

    So whoever is equal to it has heard of all that was altered before, and does not merely lag as we would.
    """
    body = {"resources": [{"resourceType": kind, "resourceName": name}], "includeSynonyms": True}
    (result,) = (await client.request("POST", "configs:describe", json=body, params={"consistency": "strong"})).body[
        "results"
    ]
    assert result["errorCode"] == 0, result
    assert result["warnings"] == [], result["warnings"]
    return {item["name"]: _shown(item) for item in result["configs"]}


async def their_configs(admin: Admin, kind: str, name: str) -> dict[str, Any]:
    """Describe a topic or broker by Kafka."""
    return await asyncio.to_thread(admin.describe_configs, kind, name)


def _shown(item: Mapping[str, Any]) -> dict[str, Any]:
    assert item["assumed"] is False, f"{item['name']} is assumed although the broker's file is known"
    return {
        "value": item["value"],
        "source": item["configSource"],
        "type": item["configType"],
        "readOnly": item["readOnly"],
        "sensitive": item["isSensitive"],
        "synonyms": [[synonym["name"], synonym["value"], synonym["source"]] for synonym in item["synonyms"]],
    }


async def new_topics(client: ConfplaneClient, admin: Admin, *names: str) -> None:
    """Have Kafka create topics, and wait until both it and Confplane know them."""

    async def known() -> bool:
        try:
            for name in names:
                await our_configs(client, "TOPIC", name)
        except ProblemError as problem:
            assert problem.kafka_error_code == 3, problem
            return False
        return True

    await asyncio.to_thread(admin.create_topics, *names)
    await until(known, BOUND_S, why=f"Confplane knows all of {names}", pause_s=0.1)


async def same_configs(client: ConfplaneClient, admin: Admin, kind: str, name: str) -> dict[str, Any]:
    """Wait until Kafka and Confplane describe a topic or broker alike in every field, and return that."""
    found: dict[str, Any] = await until_equal(
        lambda: our_configs(client, kind, name),
        lambda: their_configs(admin, kind, name),
        f"{kind} {name}, ours | theirs",
    )
    return found


async def our_alter(client: ConfplaneClient, kind: str, name: str, *ops: tuple[str, str, str | None]) -> None:
    """Alter a topic or broker by Confplane."""
    code, answer = await our_alter_code(client, kind, name, ops)
    assert code == 0, answer


async def our_alter_code(
    client: ConfplaneClient,
    kind: str,
    name: str,
    ops: Sequence[tuple[str, str, str | None]],
    *,
    validate_only: bool = False,
) -> tuple[int, Any]:
    """Alter a topic or broker by Confplane and return the error code, and what it came with."""
    configs = [{"name": key, "configOperation": op, "value": value} for key, op, value in ops]
    resource = {"resourceType": kind, "resourceName": name, "configs": configs}
    return await _code(
        client, "configs:incrementalAlter", "responses", {"resources": [resource], "validateOnly": validate_only}
    )


async def our_quota_code(
    client: ConfplaneClient,
    entity: Mapping[str, str | None],
    ops: Sequence[tuple[str, Any]],
    *,
    validate_only: bool = False,
) -> tuple[int, Any]:
    """Alter a quota entity by Confplane and return the error code, and what it came with; None removes."""
    entry = {
        "entity": [{"entityType": kind, "entityName": name} for kind, name in entity.items()],
        "ops": [{"key": key, "remove": True} if value is None else {"key": key, "value": value} for key, value in ops],
    }
    return await _code(client, "client-quotas:alter", "entries", {"entries": [entry], "validateOnly": validate_only})


async def _code(client: ConfplaneClient, method: str, results: str, body: Mapping[str, Any]) -> tuple[int, Any]:
    try:
        answer = (await client.request("POST", method, json=dict(body))).body
    except ProblemError as problem:
        answer = problem.body
    if results in answer:
        (result,) = answer[results]
        return result["errorCode"], result
    return answer["kafkaErrorCode"], answer
