"""Dynamic client configs (KIP-649): their entities, their keys, and the checks of their values.

Three keys are dynamic by the KIP: ``acks`` of producers, ``session.timeout.ms`` and ``heartbeat.interval.ms`` of
consumers. A cluster's settings can add further configs of the clients. Values are strings and are stored exactly as
given; the clients parse them.

Source: KIP-649; the ranges of session timeouts are the broker's ``group.min.session.timeout.ms`` and
``group.max.session.timeout.ms`` (GroupCoordinatorConfig.java).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confplane.domain.definitions import ConfigKind, ConfigValueError, parse
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import ClientFacet, FacetName, Rank
from confplane.domain.suggestions import suggestion
from confplane.domain.texts import clipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.definitions import Catalog
    from confplane.domain.facets import JsonValue

ACKS: Final = "acks"
SESSION_TIMEOUT: Final = "session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "heartbeat.interval.ms"

BUILT_IN_KEYS: Final = frozenset({ACKS, SESSION_TIMEOUT, HEARTBEAT_INTERVAL})
"""The keys that are dynamic everywhere."""

SUPPORTED_CONFIGS: Final = "supported.configs"
"""The key under which clients register their configs; never set by an alter."""

INSTANCE_ID: Final = r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}$"
"""Names of running clients, as a pattern that must match the whole text."""

IDENTIFYING_KEYS: Final = frozenset(
    {"bootstrap.servers", "client.id", "group.id", "group.instance.id", "transactional.id"}
)
"""Keys that identify a client and its servers: entries can't be looked up before these are known."""

GROUP_KEYS: Final = {
    SESSION_TIMEOUT: "consumer.session.timeout.ms",
    HEARTBEAT_INTERVAL: "consumer.heartbeat.interval.ms",
}
"""Key of clients -> the config of a group that does the same for consumers with ``group.protocol=consumer``."""

_KINDS: Final = frozenset({(EntityType.USER,), (EntityType.USER, EntityType.CLIENT_ID)})
_EXAMPLES: Final = {ACKS: '"all"', SESSION_TIMEOUT: '"30000"', HEARTBEAT_INTERVAL: '"3000"'}


class ClientConfigsFacet(ClientFacet):
    """The facet ``client-configs`` of one cluster. Stateless.

    Args:
        catalog: The definitions of the clients' configs.
        extra_keys: Keys that are dynamic besides the built-in ones (the setting ``dynamic_client_configs``).
        min_session_timeout_ms: The brokers' ``group.min.session.timeout.ms``, milliseconds.
        max_session_timeout_ms: The brokers' ``group.max.session.timeout.ms``, milliseconds.

    Raises:
        ValueError: An extra key is not a client config, is a secret, or identifies the client; or the bounds are
            crossed.
    """

    name = FacetName.CLIENT_CONFIGS
    member = "configs"
    entity_types = frozenset({EntityType.USER, EntityType.CLIENT_ID})
    has_secrets = False

    def __init__(
        self,
        catalog: Catalog,
        *,
        extra_keys: frozenset[str] = frozenset(),
        min_session_timeout_ms: int = 6_000,
        max_session_timeout_ms: int = 1_800_000,
    ) -> None:
        for key in sorted(extra_keys):
            _check_extra(catalog, key)
        if min_session_timeout_ms > max_session_timeout_ms:
            raise ValueError("The least session timeout is above the greatest")
        self._catalog: Final = catalog
        self.keys: Final = BUILT_IN_KEYS | extra_keys
        """All dynamic keys of this cluster."""
        self.min_session_timeout_ms: Final = min_session_timeout_ms
        self.max_session_timeout_ms: Final = max_session_timeout_ms

    def check_entity(self, entity: Entity, *, pointer: str | None = None) -> None:
        """Refuse entities other than ``<user>`` and ``<user, client-id>``, of which each may be the default.

        Raises:
            InvalidRequestError: No user, or another type besides it.
        """
        if entity.types in _KINDS:
            return
        for kind in entity.types:
            if kind not in {*self.entity_types, EntityType.IP}:
                raise InvalidRequestError(f"Unhandled client config entity type: {kind}", pointer=pointer)
        if EntityType.USER not in entity.types:
            raise InvalidRequestError(
                "Invalid empty client config entity: a user is needed, with or without a client-id", pointer=pointer
            )
        raise InvalidRequestError(
            "Invalid client config entity combination, a user goes with a client-id or stands alone", pointer=pointer
        )

    def rank(self, entity: Entity) -> Rank:
        """Return the rank: a user and its pairs are levels of one scope, because a pair is checked against its user."""
        user = Entity(entity.components[:1])
        return Rank(user.id, "user" if entity.types == (EntityType.USER,) else "pair")

    def owns(self, entity: Entity, key: str) -> bool:
        """Return True if a stored key is a dynamic client config."""
        return key in self.keys and entity.types in _KINDS

    def encode(self, entity: Entity, key: str, value: JsonValue, *, exact: bool, pointer: str | None = None) -> str:
        """Validate a value and return it, unchanged.

        Raises:
            InvalidRequestError: Not a dynamic key, not a string, or refused by the key's definition or bounds.
        """
        del entity, exact  # the keys are the same everywhere, and strings are always exact
        self._check_key(key, pointer)
        if not isinstance(value, str):
            example = _EXAMPLES.get(key) or f'"{self._catalog.find(key)[0].default or "value"}"'
            raise InvalidRequestError(
                f"The value of {key} must be a JSON string in quotes, such as {example}", pointer=pointer
            )
        if key == ACKS and value.strip() != value:
            # A client would trim the value; other readers of the store might not.
            raise InvalidRequestError("acks must be one of all, -1, 0, 1, without blanks around it", pointer=pointer)
        try:
            # If producer and consumer both have the key, the value must be valid for both: either may resolve it.
            parsed = [parse(definition, value) for definition in self._catalog.find(key)]
        except ConfigValueError as error:
            raise InvalidRequestError(str(error), pointer=pointer) from None
        number = parsed[0]
        if key == SESSION_TIMEOUT and isinstance(number, int):
            least, most = self.min_session_timeout_ms, self.max_session_timeout_ms
            if not least <= number <= most:
                raise InvalidRequestError(
                    f"{key} must be at least {least} and at most {most}, the bounds that the brokers accept",
                    pointer=pointer,
                )
        if key == HEARTBEAT_INTERVAL and isinstance(number, int) and number < 1:
            # Kafka's definition has no bound, and without a bound a consumer would heartbeat in a busy loop.
            raise InvalidRequestError(f"{key} must be at least 1", pointer=pointer)
        return value

    def check_remove(self, entity: Entity, key: str, *, pointer: str | None = None) -> None:
        """Refuse the removal of ``supported.configs``; other removals are never checked.

        Raises:
            InvalidRequestError: The key is ``supported.configs``.
        """
        del entity
        if key == SUPPORTED_CONFIGS:
            raise _supported_configs(pointer)

    def decode(self, entity: Entity, key: str, stored: str) -> str:
        """Return the stored string as it is."""
        del entity, key
        return stored

    def remarks(self, entity: Entity) -> list[str]:
        """Warn about entities whose entries no client resolves."""
        defaults = [kind for kind, name in entity.components if name is None]
        if not defaults:
            return []
        text = (
            f"Clients do not resolve the default {' and the default '.join(defaults)} for client configs: "
            "only entries of a named user, alone or with a named client-id, reach a client"
        )
        return [text]

    def check_whole(
        self, entity: Entity, after: Mapping[str, str], *, inherited: Mapping[str, str], pointers: Mapping[str, str]
    ) -> list[str]:
        """Check the heartbeat interval against the session timeout in the entity's own resolved pair.

        A contradiction within inherited values is not this entity's fault, and only produces a warning. The same
        applies to a stored value that does not parse and was written by another client.

        Raises:
            InvalidRequestError: Both keys are dynamic, at least one is the entity's own, and a consumer would refuse
                the pair.
        """
        warnings = self.remarks(entity)
        for key in sorted(after.keys() & self.keys):
            if (problem := _problem(self._catalog, key, after[key])) is not None:
                warnings.append(f"The stored value can't be used by clients: {problem}")
        resolved = {**inherited, **after}
        heartbeat = _integer(self._catalog, HEARTBEAT_INTERVAL, resolved.get(HEARTBEAT_INTERVAL))
        session = _integer(self._catalog, SESSION_TIMEOUT, resolved.get(SESSION_TIMEOUT))
        if heartbeat is None or session is None or heartbeat < session:
            return warnings
        text = (
            f"{HEARTBEAT_INTERVAL} ({heartbeat}{_whose(HEARTBEAT_INTERVAL, after)}) must be below "
            f"{SESSION_TIMEOUT} ({session}{_whose(SESSION_TIMEOUT, after)})"
        )
        if HEARTBEAT_INTERVAL in after or SESSION_TIMEOUT in after:
            raise InvalidRequestError(text, pointer=pointers.get(HEARTBEAT_INTERVAL) or pointers.get(SESSION_TIMEOUT))
        return [*warnings, text]

    def _check_key(self, key: str, pointer: str | None) -> None:
        if key == SUPPORTED_CONFIGS:
            raise _supported_configs(pointer)
        if key in self.keys:
            return
        dynamic = f"dynamic here are {', '.join(sorted(self.keys))}"
        try:
            _check_extra(self._catalog, key)
        except ValueError as error:
            end = suggestion(self._catalog, ConfigKind.PRODUCER, key)
            raise InvalidRequestError(
                f"Invalid configuration key {clipped(key)}: {error}; {dynamic}{end}", pointer=pointer
            ) from None
        raise InvalidRequestError(
            f"Invalid configuration key {key}: it is a client config that is not dynamic in this cluster; "
            f"the setting dynamic_client_configs can add it; {dynamic}",
            pointer=pointer,
        )


def group_remarks(wanted: Mapping[str, str | None]) -> list[str]:
    """Warn about keys that consumers of Kafka 4 drop under ``group.protocol=consumer``.

    A warning names the key of groups that replaces the dropped one.

    Args:
        wanted: Keys with the values to set; None is a removal.
    """
    return [
        f"{key} reaches no consumer with group.protocol=consumer: there the brokers set it for a whole group, by"
        f" {GROUP_KEYS[key]} of the entity group=<group id> in configs"
        for key in GROUP_KEYS
        if wanted.get(key) is not None
    ]


def _check_extra(catalog: Catalog, key: str) -> None:
    """Raise ValueError for a key that can't be made dynamic."""
    definitions = catalog.find(key)
    if not definitions:
        raise ValueError(f"{clipped(key)} is not a config of Kafka's producer or consumer")
    if any(definition.sensitive for definition in definitions):
        raise ValueError(f"{key} is a secret and can't be dynamic")
    if key in IDENTIFYING_KEYS:
        raise ValueError(f"{key} identifies the client or its cluster and can't be dynamic")
    if any(definition.internal for definition in definitions):
        raise ValueError(f"{key} is internal to Kafka's clients and can't be dynamic")


def _supported_configs(pointer: str | None) -> InvalidRequestError:
    return InvalidRequestError(
        f"{SUPPORTED_CONFIGS} is what clients register themselves and can't be altered; it is under registrations",
        pointer=pointer,
    )


def _problem(catalog: Catalog, key: str, value: str) -> str | None:
    try:
        for definition in catalog.find(key):
            parse(definition, value)
    except ConfigValueError as error:
        return str(error)
    return None


def _integer(catalog: Catalog, key: str, value: str | None) -> int | None:
    """Parse one of the two timeouts. Returns None if it is absent or can't be parsed."""
    if value is None or _problem(catalog, key, value) is not None:
        return None
    parsed = parse(catalog.find(key)[0], value)
    return parsed if isinstance(parsed, int) else None


def _whose(key: str, after: Mapping[str, str]) -> str:
    return "" if key in after else ", inherited from the user"
