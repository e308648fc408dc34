"""The entries of describes as JSON, kept per node.

Nodes never change, so what an entity declares is rendered once and then taken as bytes: a describe of 100,000 entities
is a walk over them and one join. What is kept costs some 350 bytes an entity that was ever described.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from app.api import views
from app.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from app.domain.changes import Node
    from app.domain.facets import JsonValue
    from app.services.collections import Collection
    from app.services.ports.registrations import Registration
    from app.services.reads.describe import DescribeService

_Kept = dict[str, tuple["Node", bytes | None]]

_NOBODY: Final = b',"entityCompatibility":[]}'
_SLACK: Final = 10_000
"""Entries of entities that are gone, kept before they are looked for."""


class Entries:
    """Renders entries and keeps them. Only the event loop touches it."""

    def __init__(self, describe: DescribeService) -> None:
        self._describe = describe
        self._kept: dict[tuple[str, str], _Kept] = {}

    def of(self, collection: Collection) -> Callable[[str, Node | None, Sequence[Registration]], bytes | None]:
        """Return what renders one collection's entries, each as a whole JSON object.

        It returns None where there is nothing to tell: nothing declared, and no client known. It raises
        CorruptZnodeError where a node can't be read.
        """
        kept = self._kept.setdefault((collection.store.name, collection.name.value), {})
        declared_of = self._describe.declared
        with_compatibility = collection.name is FacetName.CLIENT_CONFIGS

        def render(entity_id: str, node: Node | None, known: Sequence[Registration]) -> bytes | None:
            found = kept.get(entity_id)
            if found is not None and found[0] is node:
                ready = found[1]
            else:
                declared = declared_of(collection, entity_id, node)
                ready = (_head if with_compatibility else entry)(entity_id, declared) if declared else None
                if node is not None:
                    kept[entity_id] = (node, ready)
            if not with_compatibility:
                return ready
            if not known:
                return None if ready is None else ready + _NOBODY
            return _with_clients(_head(entity_id, {}) if ready is None else ready, known)

        return render

    def tidy(self, collection: Collection, present: Sequence[tuple[str, bytes]]) -> None:
        """Forget what is gone, told all entries that there are."""
        key = collection.store.name, collection.name.value
        kept = self._kept.get(key, {})
        if len(kept) > len(present) + _SLACK:
            self._kept[key] = {entity_id: kept[entity_id] for entity_id, _ in present if entity_id in kept}


def entry(entity_id: str, declared: Mapping[str, JsonValue]) -> bytes:
    """Return one entry without the clients that are known of it."""
    return _head(entity_id, declared) + b"}"


def _with_clients(head: bytes, known: Sequence[Registration]) -> bytes:
    """Return an entry with the clients that are known of it, of one that was not closed."""
    return head + b',"entityCompatibility":' + orjson.dumps([views.compatibility(each) for each in known]) + b"}"


def _head(entity_id: str, declared: Mapping[str, JsonValue]) -> bytes:
    """Return an entry that is not closed, so that more members can follow."""
    return orjson.dumps({"entity": views.entity_data(entity_id), "values": views.values(declared)})[:-1]
