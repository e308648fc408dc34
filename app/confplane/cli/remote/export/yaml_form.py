"""The form ``yaml``: a list of entities that ``confplane load`` reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import yaml

from confplane.cli.remote.strict_yaml import Dumper
from confplane.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from confplane.cli.remote.selection import EntityReader

_UNFOLDED: Final = 2**31 - 1
"""Maximum line length, large enough to avoid folding: a folded value is hard to search for."""


async def render(reader: EntityReader) -> AsyncIterator[str]:
    """Write a document whose list has an item for each entity."""
    yield f"# Configs of the cluster {reader.client.cluster}, for `confplane load`. A secret is null.\n"
    empty = True
    async for each in reader.read(*FacetName):
        empty = False
        item = {"id": each.id} | {facet.value: values for facet, values in each.facets.items()}
        yield yaml.dump([item], Dumper=Dumper, sort_keys=False, allow_unicode=True, width=_UNFOLDED)
    if empty:
        yield "[]\n"
