"""Checks the sizes of brokers' thread pools against the values in their own files, as the brokers' next start will do.

A broker resizes a pool to between half and double of its size. At its start the size is that of its own file, so a
dynamic value that was reached in several steps does not fit any more: the broker then drops all of its dynamic
defaults, and refuses later alters of its own configs.

Source: core/src/main/scala/kafka/server/DynamicBrokerConfig.scala (``DynamicThreadPool``, ``DynamicRemoteLogConfig``,
``updateDefaultConfig``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confplane.domain.broker_consistency import POOLS, pool_bounds
from confplane.domain.entities import EntityType
from confplane.domain.errors import InvalidRequestError, UnavailableError, WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.entities import Entity
    from confplane.services.ports.applying import WritableKafkaCluster

_UNCHECKED: Final = (
    "It is not known whether {brokers} will accept {keys} at the next start: {reason}. A broker drops all dynamic"
    " defaults if a pool of threads is less than half, or more than double, of the size in its own file"
)


async def check_restart(
    cluster: WritableKafkaCluster,
    entity: Entity,
    values: Mapping[str, str | None],
    deadline: float,
    *,
    pointer: str | None = None,
) -> str | None:
    """Check the values that brokers will read at their next start.

    Args:
        cluster: The cluster.
        entity: The altered entity; only brokers and their default are checked.
        values: The altered keys; None for a removal.
        deadline: On ``time.monotonic()``'s clock.
        pointer: A JSON pointer to the entity in the request, for errors.

    Returns:
        A warning if the file of a broker is not known, else None.

    Raises:
        InvalidRequestError: A broker would drop its dynamic configs at its next start.
    """
    sizes = {key: value for key, value in values.items() if value is not None and key in POOLS}
    if entity.types[0] is not EntityType.BROKER or not sizes:
        return None
    name = entity.components[0][1]
    try:
        files = await cluster.static_values(sizes.keys(), None if name is None else int(name), deadline)
    except UnavailableError as error:
        return _UNCHECKED.format(brokers="each broker", keys=", ".join(sorted(sizes)), reason=error.detail)
    for broker, static in sorted(files.items()):
        for key in sorted(sizes.keys() & (static or {}).keys()):
            size = (static or {})[key]
            bounds = pool_bounds(size, sizes[key])
            if bounds is not None:
                raise InvalidRequestError(
                    f"Invalid dynamic configuration: {key} can be between {bounds[0]} and {bounds[1]} on broker"
                    f" {broker}, half and double of the {size} of its own file or Kafka's default. It would drop all"
                    " dynamic defaults at its next start otherwise. Change its file first, and restart it",
                    pointer=pointer,
                    outcome=WriteOutcome.NOT_APPLIED,
                )
    away = sorted(broker for broker, static in files.items() if static is None)
    if not away:
        return None
    listed = ", ".join(f"broker {broker}" for broker in away)
    return _UNCHECKED.format(brokers=listed, keys=", ".join(sorted(sizes)), reason="it does not answer")
