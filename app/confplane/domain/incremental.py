"""IncrementalAlterConfigs: SET, DELETE, APPEND and SUBTRACT on a stored map.

The ops are applied here; the rules of topics (:mod:`confplane.domain.topics`) and brokers
(:mod:`confplane.domain.brokers`) check the result. Elements of lists are the texts between bare commas: blanks belong
to them.

Source: core/src/main/scala/kafka/server/ConfigAdminManager.scala (``prepareIncrementalConfigs``).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from confplane.domain.definitions import ConfigType, list_elements
from confplane.domain.errors import ErrorList, InvalidConfigError, InvalidRequestError
from confplane.domain.ops import OpType
from confplane.domain.texts import clipped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confplane.domain.definitions import ConfigDef
    from confplane.domain.ops import Op


def check_ops(ops: Sequence[Op]) -> None:
    """Refuse ops that contradict each other or lack their value; Kafka reports these errors before all other errors.

    Raises:
        InvalidRequestError: A key is named twice, with any ops, or an op other than DELETE has no value or a value that
            is not a string.
    """
    errors = ErrorList()
    seen: set[str] = set()
    for op in ops:
        if op.key in seen:
            errors.add(
                InvalidRequestError(
                    f"Error due to duplicate config keys: {clipped(op.key)} is named twice", pointer=op.pointer
                )
            )
        seen.add(op.key)
    errors.raise_all()
    missing = [op for op in ops if op.value is None and op.type is not OpType.DELETE]
    if missing:
        keys = ", ".join(clipped(op.key) for op in missing[:20])
        raise InvalidRequestError(f"Null value not supported for : {keys}", pointer=missing[0].pointer)
    for op in ops:
        if op.type is not OpType.DELETE and not isinstance(op.value, str):
            errors.add(_not_a_string(op))
    errors.raise_all()


def check_list_ops(ops: Sequence[Op], definitions: Mapping[str, ConfigDef]) -> None:
    """Refuse APPEND and SUBTRACT on a config that is not a list. Kafka reports this before an absent topic.

    Raises:
        InvalidConfigError: The key is unknown or not a list.
    """
    errors = ErrorList()
    for op in ops:
        if op.type in {OpType.APPEND, OpType.SUBTRACT}:
            try:
                _list_definition(op, definitions)
            except InvalidConfigError as error:
                errors.add(error)
    errors.raise_all()


def apply_incremental(
    stored: Mapping[str, str], ops: Sequence[Op], definitions: Mapping[str, ConfigDef]
) -> dict[str, str]:
    """Return the complete map after ops on a stored one. Values of SET are not checked.

    APPEND and SUBTRACT start from the stored value, and without one, from the definition's default, never from the
    effective value. If a SUBTRACT empties a list, the key remains with an empty value.

    Args:
        stored: The map as stored, secrets in plain text.
        ops: The ops of one entity.
        definitions: The definitions of its kind: ``topic`` or ``broker`` of a
          :class:`confplane.domain.definitions.Catalog`.

    Raises:
        InvalidRequestError: As :func:`check_ops`.
        InvalidConfigError: APPEND or SUBTRACT on a key that is unknown or not a list.
    """
    check_ops(ops)
    after = dict(stored)
    for op in ops:
        if op.type is OpType.DELETE:
            after.pop(op.key, None)
        elif op.type is OpType.SET:
            after[op.key] = _text(op)
        else:
            definition = _list_definition(op, definitions)
            old = _elements(after.get(op.key, definition.default or ""))
            given = _elements(_text(op))
            after[op.key] = ",".join(_append(old, given) if op.type is OpType.APPEND else _subtract(old, given))
    return after


def without_repetitions(
    after: Mapping[str, str], ops: Sequence[Op], definition_of: Callable[[str], ConfigDef | None]
) -> tuple[dict[str, str], list[str]]:
    """Return a map in which lists that ops set have each element once, with a warning for each shortened list.

    Kafka before 4.0 accepts repeated elements, and brokers of 4.2 do not start with them (KIP-1161).

    Args:
        after: The map after the ops, secrets in plain text.
        ops: The ops.
        definition_of: Returns the definition of a key; None for an unknown key.
    """
    found = dict(after)
    warnings = []
    for op in ops:
        if op.type is OpType.DELETE or "${" in (value := after[op.key]):  # a reference may contain commas
            continue
        definition = definition_of(op.key)
        if definition is None or definition.type is not ConfigType.LIST:
            continue
        elements = list_elements(value)
        distinct = list(dict.fromkeys(elements))
        if len(distinct) != len(elements):
            found[op.key] = ",".join(distinct)
            repeated = [element for element, times in Counter(elements).items() if times > 1]
            warnings.append(f"{clipped(op.key)} is stored without repeated elements: {clipped(', '.join(repeated))}")
    return found, warnings


def _text(op: Op) -> str:
    if isinstance(op.value, str):
        return op.value
    raise _not_a_string(op)


def _not_a_string(op: Op) -> InvalidRequestError:
    return InvalidRequestError(
        f'The value of {clipped(op.key)} must be a JSON string in quotes, such as "1000"', pointer=op.pointer
    )


def _list_definition(op: Op, definitions: Mapping[str, ConfigDef]) -> ConfigDef:
    definition = definitions.get(op.key)
    if definition is None:
        raise InvalidConfigError(f"Unknown config name: {clipped(op.key)}", pointer=op.pointer)
    if definition.type is not ConfigType.LIST:
        raise InvalidConfigError(
            f"Config value {op.type.name.lower()} is not allowed for config key: {op.key}", pointer=op.pointer
        )
    return definition


def _elements(text: str) -> list[str]:
    """Split as Java does: empty elements at the end are dropped, and an empty text is one empty element."""
    if not text:
        return [""]
    elements = text.split(",")
    while elements and not elements[-1]:
        elements.pop()
    return elements


def _append(old: list[str], given: list[str]) -> list[str]:
    present = [] if old == [""] else old
    return present + [element for element in given if element not in present]


def _subtract(old: list[str], given: list[str]) -> list[str]:
    """Remove each given element once."""
    to_go = Counter(given)
    kept = []
    for element in old:
        if to_go[element]:
            to_go[element] -= 1
        else:
            kept.append(element)
    return kept
