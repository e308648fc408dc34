"""The effective configs of one client, as the applications poll them, rendered once for each pair of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from app.api.rendered.entries import described, entry
from app.domain.entities import CACHED_LENGTH

if TYPE_CHECKING:
    from app.domain.changes import Node
    from app.domain.filters import EntityFilter
    from app.services.collections import Collection
    from app.services.reads.describe import DescribeService

_MOST: Final = 16_384
"""Most answers kept."""
_SHORT: Final = 2_048
"""Most bytes of an answer that is kept: some thirty configs."""


class Resolutions:
    """Answers requests with ``resolveEntity``, and keeps the answers. Only the event loop touches it.

    Nodes never change, so an answer is good for as long as the nodes of the user and of the pair are the same.
    """

    def __init__(self, describe: DescribeService) -> None:
        self._describe = describe
        self._kept: dict[tuple[str, str], tuple[tuple[Node | None, ...], bytes]] = {}

    def answer(self, collection: Collection, wanted: EntityFilter) -> bytes:
        """Return a describe's answer with the effective configs of the client that a filter names.

        Raises:
            InvalidRequestError: The filter has no exact user, or a client-id that is not exact.
            CorruptZnodeError: One of the deciding nodes can't be read.
        """
        entity, nodes = self._describe.deciding(collection, wanted)
        key = collection.store.name, entity.id
        found = self._kept.get(key)
        if found is not None and found[0] == nodes:
            return found[1]
        answer = described([entry(entity.id, self._describe.decided(collection, nodes))], [])
        if len(answer) <= _SHORT and len(entity.id) <= CACHED_LENGTH:
            if found is None and len(self._kept) >= _MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = nodes, answer
        return answer
