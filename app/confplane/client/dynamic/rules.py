"""The rules of KIP-649 for a client: which dynamic values it applies, and which it drops.

Pure functions over Java's names and texts. A dynamic value wins over the user's own. A key that is absent from the
dynamic values keeps the user's own value, so a removed key goes back to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confplane.client.dynamic import names
from confplane.domain.client_configs import ACKS, HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from confplane.domain.definitions import ConfigKind, ConfigValueError, catalog_of, parse
from confplane.domain.releases import ON_ZOOKEEPER

if TYPE_CHECKING:
    from collections.abc import Mapping

SUPPORTED: Final[Mapping[ConfigKind, tuple[str, ...]]] = {
    ConfigKind.PRODUCER: (ACKS,),
    ConfigKind.CONSUMER: (HEARTBEAT_INTERVAL, SESSION_TIMEOUT),
}
"""The configs that a client of each kind applies, and registers as supported."""
DEFAULT_MAX_AGE_MS: Final = 300_000
"""Kafka's default of ``metadata.max.age.ms``."""

_IDS: Final = {key for keys in SUPPORTED.values() for key in keys}


@dataclass(frozen=True, slots=True)
class Dropped:
    """A dynamic value that a client does not apply."""

    key: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The dynamic values that a client applies, by Java's names, and those that it drops."""

    accepted: Mapping[str, str]
    dropped: tuple[Dropped, ...] = ()


def enabled(own: Mapping[str, str]) -> bool:
    """Return False if the user's settings turn dynamic configs off."""
    return own.get(names.ENABLE_DYNAMIC_CONFIG, "true").strip().lower() != "false"


def max_age_s(own: Mapping[str, str]) -> float | None:
    """Return the seconds between two polls, from ``metadata.max.age.ms``, or None if it is not a number above 0."""
    try:
        found = float(own.get(names.METADATA_MAX_AGE, DEFAULT_MAX_AGE_MS)) / 1000
    except ValueError:
        return None
    return found if math.isfinite(found) and found > 0 else None


def decide(kind: ConfigKind, own: Mapping[str, str], dynamic: Mapping[str, str], library: names.Library) -> Decision:
    """Decide on the dynamic values of a client.

    Keys of clients of the other kind are neither accepted nor dropped: they are for other clients of the same user.

    Args:
        kind: Producer or consumer.
        own: The user's own settings, by Java's names.
        dynamic: The dynamic values.
        library: For its defaults.
    """
    supported = SUPPORTED[kind]
    accepted: dict[str, str] = {}
    dropped: list[Dropped] = []
    for key, value in sorted(dynamic.items()):
        if key in supported:
            reason = _refusal(own, key, value)
        elif key in _IDS:
            continue
        else:
            reason = f"not among the configs that this {kind} takes over: {', '.join(supported)}"
        if reason is None:
            accepted[key] = value
        else:
            dropped.append(Dropped(key, value, reason))
    if kind is ConfigKind.CONSUMER and (reason := _contradiction(own, accepted, library)) is not None:
        dropped += [Dropped(key, value, reason) for key, value in accepted.items()]
        accepted = {}
    return Decision(accepted, tuple(dropped))


def _refusal(own: Mapping[str, str], key: str, value: str) -> str | None:
    """Return the reason for refusing one value by itself, or None."""
    if key == ACKS:
        if own.get(names.ENABLE_IDEMPOTENCE, "").strip().lower() == "true":
            return f"{names.ENABLE_IDEMPOTENCE} is set to true by the application, and needs its own acks"
        if names.TRANSACTIONAL_ID in own:
            return f"{names.TRANSACTIONAL_ID} is set by the application, and needs its own acks"
    elif own.get(names.GROUP_PROTOCOL, "").strip().lower() == "consumer":
        return (
            f"{names.GROUP_PROTOCOL}=consumer: the brokers set it for the group, by the group's config consumer.{key}"
        )
    try:
        number = parse(catalog_of(ON_ZOOKEEPER).find(key)[0], value)
    except ConfigValueError as error:
        return str(error)
    return f"{key} must be at least 1" if isinstance(number, int) and number < 1 else None


def _contradiction(own: Mapping[str, str], accepted: Mapping[str, str], library: names.Library) -> str | None:
    """Return the reason for refusing a consumer's dynamic timeouts in combination with its own, or None."""
    if not accepted:
        return None
    resulting = {**own, **accepted}
    try:
        session = int(resulting.get(SESSION_TIMEOUT, library.session_timeout_ms))
        heartbeat = int(resulting.get(HEARTBEAT_INTERVAL, library.heartbeat_interval_ms))
        longest = None
        if library.max_poll_interval_ms is not None:
            longest = int(own.get(names.MAX_POLL_INTERVAL, library.max_poll_interval_ms))
    except ValueError:
        return "a timeout of the application's own is not a number"
    if heartbeat >= session:
        return f"{HEARTBEAT_INTERVAL} ({heartbeat}) would not be below {SESSION_TIMEOUT} ({session})"
    if longest is not None and session > longest:
        return (
            f"{SESSION_TIMEOUT} ({session}) would be above {names.MAX_POLL_INTERVAL} ({longest}): "
            f"consumers of {library.name} would not start"
        )
    return None
