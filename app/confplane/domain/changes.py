"""Changes: a stored map before and after, and the effect of ops on the map of a client facet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from confplane.domain.errors import ErrorList, InvalidRequestError
from confplane.domain.fast_dataclass import fast_dataclass
from confplane.domain.ops import OpType
from confplane.domain.texts import clipped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.domain.entities import Entity
    from confplane.domain.facets import ClientFacet
    from confplane.domain.ops import Op


class Node(NamedTuple):
    """One entity's znode as read: immutable, and small, because a mirror holds up to a million of them.

    ``items`` is flat (key, value, key, value, ...) in the order of the stored JSON.
    """

    id: str
    """The entity id."""
    items: tuple[str, ...]
    version: int
    czxid: int
    mzxid: int
    mtime_ms: int
    """ZooKeeper's time of the last write, milliseconds since the epoch."""
    defect: str | None = None
    """The reason why the content can't be read or can't be written back, as the rest of "The znode <path> ..."; None if
    the content is valid. ``items`` is empty when the content can't be read at all."""
    extra: bytes | None = None
    """A JSON object of foreign members next to ``config``, written back with every change; None if there are none."""

    @property
    def config(self) -> dict[str, str]:
        """The stored map, a new dict at each call."""
        return dict(zip(self.items[::2], self.items[1::2], strict=True))


def stored(node: Node | None) -> dict[str, str]:
    """Return a node's map, or an empty map if there is no node."""
    return {} if node is None else node.config


@fast_dataclass(frozen=True, slots=True)
class Difference:
    """One key's value before and after a change, as stored strings; None means absent, or a secret."""

    key: str
    before: str | None
    after: str | None
    secret: bool = False

    @property
    def is_reload(self) -> bool:
        """True if the key keeps its value, and the broker loads the file again that the value names."""
        return self.before is not None and self.before == self.after


def encode_ops(facet: ClientFacet, entity: Entity, ops: Sequence[Op], *, exact: bool) -> dict[str, str | None]:
    """Validate ops on their own, before anything stored is read.

    Returns:
        Key -> the string to store, or None for a removal; for a key that is named twice the last op applies, as in
        Kafka.

    Raises:
        InvalidRequestError: An op fails.
    """
    encoded: dict[str, str | None] = {}
    errors = ErrorList()
    for op in ops:
        try:
            encoded[op.key] = _encoded(facet, entity, op, exact=exact)
        except InvalidRequestError as error:
            errors.add(error)
    errors.raise_all()
    return encoded


def _encoded(facet: ClientFacet, entity: Entity, op: Op, *, exact: bool) -> str | None:
    if op.type is OpType.SET:
        return facet.encode(entity, op.key, op.value, exact=exact, pointer=op.pointer)
    if op.type is OpType.DELETE:
        facet.check_remove(entity, op.key, pointer=op.pointer)
        return None
    raise InvalidRequestError(
        f"{op.type.name} of {clipped(op.key)}: a key of {facet.name} can be set or removed, nothing else",
        pointer=op.pointer,
    )


def apply_ops(
    facet: ClientFacet, entity: Entity, config: Mapping[str, str], encoded: Mapping[str, str | None]
) -> tuple[dict[str, str], list[str]]:
    """Apply encoded ops to a stored map, and return the complete resulting map with warnings.

    A key of another facet is not removed, and produces a warning: foreign keys survive every write.
    """
    after = dict(config)
    warnings: list[str] = []
    for key, value in encoded.items():
        if value is not None:
            after[key] = value
        elif facet.owns(entity, key):
            after.pop(key, None)
        elif key in after:
            warnings.append(f"{key} is not a key of {facet.name} for {entity.id}; it was left as it is.")
    return after, warnings


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[Difference]:
    """List the keys whose values differ, sorted by key."""
    return [
        Difference(key, before.get(key), after.get(key))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]
