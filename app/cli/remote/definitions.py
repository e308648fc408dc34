"""Keys that entities of a type can have, for completions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.client import ClientError

if TYPE_CHECKING:
    from app.client import ConfplaneClient


async def keys_of_type(client: ConfplaneClient, kind: str) -> list[str]:
    """Return the keys that entities of a type can have; none where the service does not say."""
    try:
        definitions = await client.request("GET", "config-definitions", params={"entityType": kind})
    except ClientError:
        return []
    return sorted({item["name"] for item in definitions.body["items"]})
