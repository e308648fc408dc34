"""Brokers' listeners: their addresses, their advertised addresses, and the protocols of their names.

Source: core/src/main/scala/kafka/server/KafkaConfig.scala (``validateValues``),
core/src/main/scala/kafka/server/DynamicBrokerConfig.scala (``DynamicListenerConfig``),
core/src/main/scala/kafka/cluster/EndPoint.scala.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

LISTENERS: Final = "listeners"
ADVERTISED: Final = "advertised.listeners"
PROTOCOL_MAP: Final = "listener.security.protocol.map"
INTER_BROKER_LISTENER: Final = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL: Final = "security.inter.broker.protocol"

_ENDPOINT: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_COMMA: Final = re.compile(r"\s*,\s*")
_MAX_PORT: Final = 65_535


class ListenersError(ValueError):
    """Listeners that no broker could start with.

    Attributes:
        keys: The configs that contradict the rule or each other.
    """

    def __init__(self, text: str, *keys: str) -> None:
        super().__init__(text)
        self.keys = keys


class Endpoint(NamedTuple):
    """One address of a listener."""

    listener: str
    """The listener's name, in upper case."""
    host: str
    port: int


def parse_endpoints(key: str, text: str) -> list[Endpoint]:
    """Read a list of ``NAME://host:port``.

    Raises:
        ListenersError: An element has another form, or a name or port appears twice.
    """
    found: list[Endpoint] = []
    for element in filter(None, _COMMA.split(text.strip())):
        match = _ENDPOINT.fullmatch(element)
        if match is None or int(match[3]) > _MAX_PORT:
            raise ListenersError(f"{key} must be a list of NAME://host:port", key)
        found.append(Endpoint(match[1].strip().upper(), match[2], int(match[3])))
    names = [endpoint.listener for endpoint in found]
    if len(set(names)) < len(names):
        raise ListenersError(f"{key} must name each listener once", key)
    if key == LISTENERS:
        if not found:
            raise ListenersError(f"{key} must name at least one listener", key)
        # Port 0 lets the system choose; an IPv4 and an IPv6 address may share one.
        ports = [(endpoint.port, ":" in endpoint.host) for endpoint in found if endpoint.port > 0]
        if len(set(ports)) < len(ports):
            raise ListenersError(f"{key} must give each listener a port of its own", key)
    elif any(endpoint.host == "0.0.0.0" for endpoint in found):  # noqa: S104 - refused here, not bound to
        raise ListenersError(f"{key} must not advertise 0.0.0.0, which nobody can connect to", key)
    return found


def parse_protocol_map(text: str) -> dict[str, str]:
    """Read ``listener.security.protocol.map``: listener's name, in upper case -> protocol.

    Raises:
        ListenersError: Not a list of ``NAME:PROTOCOL``, or not a protocol.
    """
    found: dict[str, str] = {}
    for element in filter(None, _COMMA.split(text.strip())):
        name, separator, protocol = (part.strip() for part in element.rpartition(":"))
        if not separator or not name or protocol not in _PROTOCOLS:
            raise ListenersError(
                f"{PROTOCOL_MAP} must be a list of NAME:PROTOCOL, with a protocol of {', '.join(_PROTOCOLS)}",
                PROTOCOL_MAP,
            )
        if name.upper() in found:
            raise ListenersError(f"{PROTOCOL_MAP} must name each listener once", PROTOCOL_MAP)
        found[name.upper()] = protocol
    return found


class BrokerListeners(NamedTuple):
    """The listeners of one broker."""

    endpoints: list[Endpoint]
    advertised: list[Endpoint]
    protocols: Mapping[str, str]
    inter_broker: str | None
    """The listener that brokers use among themselves. None if an unknown file decides it."""

    @property
    def names(self) -> set[str]:
        """The listeners' names."""
        return {endpoint.listener for endpoint in self.endpoints}


def read_listeners(values: Mapping[str, str], *, file_known: bool) -> BrokerListeners:
    """Read and check the listeners of one broker.

    Args:
        values: The broker's configs, with Kafka's defaults for unset configs.
        file_known: Whether ``values`` includes the broker's server.properties.

    Raises:
        ListenersError: A value can't be read, or values contradict each other.
    """
    endpoints = parse_endpoints(LISTENERS, values.get(LISTENERS, ""))
    advertised = parse_endpoints(ADVERTISED, values[ADVERTISED]) if values.get(ADVERTISED) else endpoints
    protocols = parse_protocol_map(values.get(PROTOCOL_MAP, ""))
    inter_broker = None
    if file_known:
        name = values.get(INTER_BROKER_LISTENER) or values.get(INTER_BROKER_PROTOCOL) or "PLAINTEXT"
        inter_broker = name.strip().upper()
    found = BrokerListeners(endpoints, advertised, protocols, inter_broker)
    unmapped = sorted(found.names - set(protocols))
    if unmapped:
        raise ListenersError(
            f"{LISTENERS}: {PROTOCOL_MAP} has no protocol for {', '.join(unmapped)}", LISTENERS, PROTOCOL_MAP
        )
    unknown = sorted({endpoint.listener for endpoint in advertised} - found.names)
    if unknown:
        raise ListenersError(f"{ADVERTISED}: {LISTENERS} has no {', '.join(unknown)}", ADVERTISED, LISTENERS)
    if inter_broker is not None and inter_broker not in {endpoint.listener for endpoint in advertised}:
        raise ListenersError(
            f"{ADVERTISED}: {inter_broker} is missing, which brokers use among themselves", ADVERTISED, LISTENERS
        )
    return found
