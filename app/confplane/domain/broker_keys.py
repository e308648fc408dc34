"""Names of broker configs: forms with a listener's prefix, synonyms, secrets.

A listener can have a value of its own under ``listener.name.<listener>.<key>``; some keys also need the SASL mechanism:
``listener.name.<listener>.<mechanism>.<key>``. Brokers write both in lower case when they look them up.

Source: core/src/main/scala/kafka/server/DynamicBrokerConfig.scala (``brokerConfigSynonyms``, ``isPasswordConfig``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from confplane.domain.definitions import Catalog, ConfigDef

_LISTENER: Final = re.compile(r"listener\.name\.([^.]*)\.(.*)", re.DOTALL)
_PASSWORDS: Final = (
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.truststore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.certificates",
    "sasl.jaas.config",
)
JAAS: Final = "sasl.jaas.config"
RELOADED_FILES: Final = {
    "ssl.keystore.location": "DynamicBrokerConfig.ReloadableFileConfigs",
    "ssl.truststore.location": "DynamicBrokerConfig.ReloadableFileConfigs",
}
"""Configs of files that a broker loads again if its own config is set to the same path: each with the place in Kafka
that lists it.

Only forms with a listener's prefix can be set. Kafka 4 writes a record for every SET of a broker's own config, also of
an equal value (``ConfigurationControlManager.incrementalAlterConfigResource``, KAFKA-14136), and the broker that reads
the record loads modified files (``DynamicConfigPublisher.reloadUpdatedFilesWithoutConfigChange``). A broker with
ZooKeeper loads them only while it handles an alter itself (``ZkAdminManager.alterBrokerConfigs``).
"""


class ListenerKey(NamedTuple):
    """A broker config in the form for one listener."""

    listener: str
    mechanism: str | None
    """The prefix of a key that is given by SASL mechanism; None without a prefix, and for other keys."""
    base: str
    """The key without any prefix."""


def listener_key(catalog: Catalog, name: str) -> ListenerKey | None:
    """Split a name with a listener's prefix into its parts. Returns None for a name without the prefix."""
    match = _LISTENER.fullmatch(name)
    if match is None:
        return None
    rest = match[2]
    for key in catalog.by_mechanism:
        if rest.endswith(key):
            return ListenerKey(match[1], rest.removesuffix(key).removesuffix(".") or None, key)
    return ListenerKey(match[1], None, rest)


def definition_of(catalog: Catalog, name: str) -> ConfigDef | None:
    """Return a broker config's definition, or None for a custom config.

    A form with a prefix has the definition of its base.
    """
    found = catalog.broker.get(name)
    if found is None and (parts := listener_key(catalog, name)) is not None:
        found = catalog.broker.get(parts.base)
    return found


def is_sensitive(catalog: Catalog, name: str) -> bool:
    """Return True if values are hidden: secrets, and custom configs, whose meaning is unknown."""
    definition = definition_of(catalog, name)
    return definition is None or definition.sensitive or is_password(name)


def is_password(name: str) -> bool:
    """Return True if brokers store the value encoded, according to the end of its name. Includes custom configs."""
    return name.endswith(_PASSWORDS)


def is_reloaded_file(catalog: Catalog, name: str) -> bool:
    """Return True for the form of one listener of a config in :data:`RELOADED_FILES`."""
    parts = listener_key(catalog, name)
    return parts is not None and parts.base in RELOADED_FILES


def is_read_only(catalog: Catalog, name: str) -> bool:
    """Return the ``readOnly`` of a describe: false only for dynamic configs under their own names.

    Forms with a prefix, custom configs and the rates without a static form can be set nevertheless.
    """
    definition = catalog.broker.get(name)
    return definition is None or not definition.dynamic or definition.dynamic_only


def synonyms_of(catalog: Catalog, name: str, *, listener_bases: bool = True) -> tuple[str, ...]:
    """Return the synonyms of a config, highest precedence first; or only the name if it has no synonyms.

    Args:
        catalog: The definitions of the cluster's release.
        name: The name of a broker config.
        listener_bases: Include the base of a form with a prefix.
    """
    definition = catalog.broker.get(name)
    if definition is not None:
        return definition.group or (name,)
    parts = listener_key(catalog, name) if listener_bases else None
    return (name,) if parts is None else (name, parts.base)
