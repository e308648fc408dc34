"""Short ways to ask for configs of topics and brokers over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from confplane.client import ProblemError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tests.support.facets import ConfplaneClient

ALTER = "configs:incrementalAlter"


async def problem(call: Awaitable[Any]) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        await call
    return caught.value


def resource(kind: int | str, name: str, *ops: tuple[Any, ...], **more: Any) -> dict[str, Any]:
    """A resource of an alter: its ops are ``(name, operation, value)``, without the value if there is none."""
    members = ("name", "configOperation", "value")
    return {
        "resourceType": kind,
        "resourceName": name,
        "configs": [dict(zip(members, op, strict=False)) for op in ops],
        **more,
    }


async def alter(client: ConfplaneClient, *resources: dict[str, Any], **members: Any) -> Any:
    return (await client.request("POST", ALTER, json={"resources": list(resources), **members})).body


async def describe(client: ConfplaneClient, *resources: tuple[Any, ...], **members: Any) -> Any:
    names = ("resourceType", "resourceName", "configurationKeys")
    body = {"resources": [dict(zip(names, item, strict=False)) for item in resources], **members}
    return (await client.request("POST", "configs:describe", json=body)).body


async def clear_brokers(client: ConfplaneClient) -> None:
    """Remove all configs of brokers, because they would be effective on the topics of the next test."""
    async for item in client.items("configs", kind="broker"):
        await client.delete("configs", item["id"])
