"""Client quotas: the keys of each entity, and how values are checked, stored and read.

The rules are those of KIP-546 and KIP-612 as implemented in Kafka 3.9. They are stricter on purpose for values that
Kafka stores although they can't be intended (NaN, negative rates, host names as ips): docs/kafka-compatibility.md lists
the differences. Kafka 4 is stricter than 3.9 (:func:`check_kraft`).

Source: core/src/main/scala/kafka/server/ZkAdminManager.scala,
server-common/src/main/java/org/apache/kafka/server/config/QuotaConfigs.java.
"""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import EntityType
from confplane.domain.enums import StrEnum
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import ClientFacet, FacetName
from confplane.domain.numbers import java_double, parse_java_double, plain_number
from confplane.domain.texts import clipped, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.domain.entities import Entity
    from confplane.domain.facets import JsonValue
    from confplane.domain.ops import Op

TOLERANCE: Final = 1e-6
"""The greatest distance of a LONG or INT quota from a whole number in an alter. This is Kafka's tolerance, because its
protocol uses doubles."""

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1

SCRAM_KEYS: Final = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"})
"""Credentials that share the znodes of users; never shown, changed or removed here."""

_USER: Final = (EntityType.USER,)
_CLIENT: Final = (EntityType.CLIENT_ID,)
_USER_CLIENT: Final = (EntityType.USER, EntityType.CLIENT_ID)
_IP: Final = (EntityType.IP,)
_KINDS: Final = frozenset({_USER, _CLIENT, _USER_CLIENT, _IP})


class QuotaType(StrEnum):
    """Kafka's type of a quota key."""

    LONG = "LONG"
    INT = "INT"
    DOUBLE = "DOUBLE"


@dataclass(frozen=True, slots=True)
class QuotaKey:
    """One quota key: its type, its range, and the kinds of entity (as tuples of types) that can have it."""

    name: str
    type: QuotaType
    unit: str
    minimum: int
    maximum: int | None
    """The greatest value. None means any finite double."""
    kinds: frozenset[tuple[EntityType, ...]]

    @property
    def integral(self) -> bool:
        """True if values are whole numbers, stored without a point."""
        return self.type is not QuotaType.DOUBLE


_CLIENT_KINDS: Final = frozenset({_USER, _CLIENT, _USER_CLIENT})

QUOTA_KEYS: Final[Mapping[str, QuotaKey]] = MappingProxyType(
    {
        key.name: key
        for key in (
            QuotaKey("consumer_byte_rate", QuotaType.LONG, "bytes per second", 0, MAX_LONG, _CLIENT_KINDS),
            QuotaKey(
                "controller_mutation_rate", QuotaType.DOUBLE, "partition mutations per second", 0, None, _CLIENT_KINDS
            ),
            QuotaKey("producer_byte_rate", QuotaType.LONG, "bytes per second", 0, MAX_LONG, _CLIENT_KINDS),
            QuotaKey("request_percentage", QuotaType.DOUBLE, "percent of one thread's time", 0, None, _CLIENT_KINDS),
            QuotaKey("connection_creation_rate", QuotaType.INT, "connections per second", 0, MAX_INT, frozenset({_IP})),
        )
    }
)
"""Every quota key, by name."""

_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,19}")


class ClientQuotasFacet(ClientFacet):
    """The facet ``client-quotas``. Stateless."""

    name = FacetName.CLIENT_QUOTAS
    member = "quotas"
    entity_types = frozenset({EntityType.USER, EntityType.CLIENT_ID, EntityType.IP})
    has_secrets = False

    def check_entity(self, entity: Entity, *, pointer: str | None = None) -> None:
        """Refuse entities that can't have quotas, and ips that brokers can't read back.

        Raises:
            InvalidRequestError: A topic or broker, ip together with another type, or an ip that is not an IPv4 literal.
        """
        for kind in entity.types:
            if kind not in self.entity_types:
                raise InvalidRequestError(f"Unhandled client quota entity type: {kind}", pointer=pointer)
        if entity.types not in _KINDS:
            raise InvalidRequestError(
                "Invalid quota entity combination, an ip stands alone: it goes with neither user nor client-id",
                pointer=pointer,
            )
        address = entity.get(EntityType.IP)
        if address is not None:
            _check_ip(address, pointer)

    def owns(self, entity: Entity, key: str) -> bool:
        """Return True if a stored key is a quota that this kind of entity can have."""
        definition = QUOTA_KEYS.get(key)
        return definition is not None and entity.types in definition.kinds

    def encode(self, entity: Entity, key: str, value: JsonValue, *, exact: bool, pointer: str | None = None) -> str:
        """Validate a quota and return the stored string: digits for LONG and INT, Java's layout for DOUBLE.

        A JSON integer is used exactly. A LONG or INT written with a point must be whole: exactly if ``exact`` is set,
        otherwise within :data:`TOLERANCE`.

        Raises:
            InvalidRequestError: The key is not one of this entity, or the value is not a number, not finite, negative,
                out of range, or not whole.
        """
        if key in SCRAM_KEYS:
            raise InvalidRequestError(
                f"Invalid configuration key {key}: it is a SCRAM credential, not a quota; "
                "set it with kafka-configs.sh or AlterUserScramCredentials",
                pointer=pointer,
            )
        definition = QUOTA_KEYS.get(key)
        if definition is None or entity.types not in definition.kinds:
            keys = ", ".join(sorted(name for name, known in QUOTA_KEYS.items() if entity.types in known.kinds))
            raise InvalidRequestError(
                f"Invalid configuration key {clipped(key)}; the quotas of {'+'.join(entity.types)} are {keys}",
                pointer=pointer,
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidRequestError(
                f"The value of {key} must be a JSON number such as 1024, not {_kind(value)}", pointer=pointer
            )
        # An int is compared before any conversion to float, which fails above 1.8e308.
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidRequestError(f"The value of {key} must be a finite number", pointer=pointer)
        if value < 0:
            raise InvalidRequestError(f"The value of {key} must be at least 0", pointer=pointer)
        if definition.integral:
            return _whole(definition, value, exact=exact, pointer=pointer)
        try:
            return java_double(float(value) + 0.0)  # -0.0 becomes 0.0
        except OverflowError:
            raise InvalidRequestError(
                f"The value of {key} is above the largest double, about 1.8e308", pointer=pointer
            ) from None

    def check_remove(self, entity: Entity, key: str, *, pointer: str | None = None) -> None:
        """Refuse the removal of a SCRAM credential, which Kafka would delete. Other removals are never checked.

        Raises:
            InvalidRequestError: The key is a SCRAM mechanism.
        """
        del entity
        if key in SCRAM_KEYS:
            raise InvalidRequestError(
                f"{key} is a SCRAM credential, not a quota, and stays; "
                "delete it with kafka-configs.sh or AlterUserScramCredentials",
                pointer=pointer,
            )

    def decode(self, entity: Entity, key: str, stored: str) -> int | float:
        """Read a stored quota as Kafka's describe does; whole numbers are an ``int``, exact for LONG and INT.

        Raises:
            ValueError: The value is not a number, or is NaN or infinite, which JSON can't represent.
        """
        del entity
        definition = QUOTA_KEYS.get(key)
        if definition is not None and definition.integral and _DIGITS.fullmatch(stored):
            return int(stored)
        value = parse_java_double(stored)
        if not math.isfinite(value):
            raise ValueError(f"{shown(stored)} is not a finite number")
        # The shortest digits are read, so that 1e23 is not shown as 99999999999999991611392.
        return int(plain_number(value)) if value.is_integer() else value

    def check_whole(
        self, entity: Entity, after: Mapping[str, str], *, inherited: Mapping[str, str], pointers: Mapping[str, str]
    ) -> list[str]:
        """Warn about stored values that this request did not write and that brokers can't read.

        Quotas never contradict each other, so nothing is refused.
        """
        del entity, inherited, pointers
        return [
            f"The stored {key} is {shown(stored)}, which brokers can't read; set or remove it"
            for key, stored in sorted(after.items())
            if key in QUOTA_KEYS and not _readable(QUOTA_KEYS[key], stored)
        ]


def check_kraft(ops: Sequence[Op], encoded: Mapping[str, str | None]) -> None:
    """Refuse ops that a cluster without ZooKeeper refuses, although a cluster with ZooKeeper accepts them.

    Source: metadata/src/main/java/org/apache/kafka/controller/ClientQuotaControlManager.java (4.4).

    Args:
        ops: The ops of one entity.
        encoded: Key -> the string to store, or None for a removal.

    Raises:
        InvalidRequestError: A key is named twice, or its value is 0.
    """
    seen: set[str] = set()
    for op in ops:
        value = encoded[op.key]
        if op.key in seen:
            raise InvalidRequestError(
                f"{clipped(op.key)} is named twice, and Kafka 4 takes each key of an entity once", pointer=op.pointer
            )
        if value is not None and parse_java_double(value) == 0:
            raise InvalidRequestError(
                f"The value of {op.key} must be greater than 0: Kafka 4 takes no quota of 0", pointer=op.pointer
            )
        seen.add(op.key)


def _check_ip(address: str, pointer: str | None) -> None:
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        pass
    else:
        return
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        reason = (
            "brokers would resolve a host name each for itself and at different times; "
            "give the address in dotted decimal, such as 10.0.0.1"
        )
    else:
        reason = "Kafka reads its node back without decoding the colons, and a broker that does so fails to start"
    raise InvalidRequestError(f"{shown(address)} is not an IPv4 address: {reason}", pointer=pointer)


def _whole(definition: QuotaKey, value: float, *, exact: bool, pointer: str | None) -> str:
    """Convert to digits as Kafka does, with its tolerance and its saturation when not exact."""
    maximum = MAX_LONG if definition.type is QuotaType.LONG else MAX_INT
    if isinstance(value, int) or exact:
        whole, tolerance = int(value), 0.0
    else:
        # Java's largest long is 2**63 as a double in Kafka's protocol; the conversion back saturates at that long.
        whole, tolerance = min(int(value + TOLERANCE), maximum), TOLERANCE
    if value - maximum > tolerance or whole > maximum:
        raise InvalidRequestError(f"The value of {definition.name} must be at most {maximum}", pointer=pointer)
    if not isinstance(value, int) and abs(float(whole) - value) > tolerance:
        raise InvalidRequestError(f"The value of {definition.name} must be a whole number", pointer=pointer)
    return str(whole)


def _readable(definition: QuotaKey, stored: str) -> bool:
    """Return True if a broker's own parser accepts a stored value.

    The parsers are Long.parseLong, Integer.parseInt and Double.parseDouble.
    """
    if not definition.integral:
        try:
            parse_java_double(stored)
        except ValueError:
            return False
        return True
    return _DIGITS.fullmatch(stored) is not None and -(definition.maximum or 0) - 1 <= int(stored) <= (
        definition.maximum or 0
    )


def _kind(value: JsonValue) -> str:
    if value is None:
        return "null"
    return "a boolean" if isinstance(value, bool) else "a string"
