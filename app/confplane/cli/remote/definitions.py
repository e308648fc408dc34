"""Keys that entities of a type can have, for completions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.client import ClientError

if TYPE_CHECKING:
    from confplane.client import AsyncConfplane


async def keys_of_type(client: AsyncConfplane, kind: str) -> list[str]:
    """Return the keys that entities of a type can have, or none if the service does not list them."""
    try:
        definitions = await client.config_definitions.list(entity_type=kind)
    except ClientError:
        return []
    return sorted({item["name"] for item in definitions.body["items"]})
