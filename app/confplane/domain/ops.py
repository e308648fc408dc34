"""Ops: an alter's instructions on single keys, for all facets."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from confplane.domain.errors import InvalidRequestError
from confplane.domain.fast_dataclass import fast_dataclass
from confplane.domain.texts import clipped

if TYPE_CHECKING:
    from confplane.domain.facets import JsonValue


class OpType(IntEnum):
    """Kafka's operations of IncrementalAlterConfigs, under the numbers of its RPC."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@fast_dataclass(frozen=True, slots=True)
class Op:
    """One operation on one key. DELETE ignores ``value``; ``pointer`` names the op in errors."""

    key: str
    type: OpType
    value: JsonValue = None
    pointer: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the op in the trail's form."""
        return op_as_json(self.key, self.type, self.value)


def op_as_json(key: str, kind: OpType, value: JsonValue = None) -> dict[str, Any]:
    """Return an op in the trail's form. The values of secrets must be removed first.

    Rows of earlier releases hold two other forms: ``{"key", "value"}`` of a SET, ``{"key", "remove": true}`` of a
    DELETE.

    A change that applies no op to a key has a form of its own: ``{"removeAll": true}`` for an emptied entity, ``MOVE``
    and ``DISCARD`` for client configs moved between the layouts, ``REENCODE`` for a password that keeps its value.
    These can't be applied again, so they are not an :class:`Op`. The values of secrets are null, marked by ``"secret":
    true``.
    """
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = float(value)  # a DOUBLE is stored as such; JSON writers support 64 bits at most
    return {"key": key, "op": kind.name, "value": value}


def op_type(given: int | str, *, pointer: str | None = None) -> OpType:
    """Read an operation: Kafka's number or its name.

    Raises:
        InvalidRequestError: The value is neither a number nor a name of an operation.
    """
    try:
        return OpType[given] if isinstance(given, str) else OpType(given)
    except (KeyError, ValueError):
        shown = clipped(str(given), 40)
        names = ", ".join(f"{kind.name} ({kind.value})" for kind in OpType)
        raise InvalidRequestError(f"Unknown operation {shown}; there are: {names}", pointer=pointer) from None
