"""Kafka's client libraries: the names and types of their settings, compared with those of the Java client.

The rules of KIP-649 speak of Java's names and of texts. kafka-python and aiokafka have the same names with underscores
and accept numbers. librdkafka, which confluent-kafka uses, has Java's names and accepts texts, with some names of its
own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.client_configs import ACKS, HEARTBEAT_INTERVAL, SESSION_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Mapping

CLIENT_ID: Final = "client.id"
ENABLE_DYNAMIC_CONFIG: Final = "enable.dynamic.config"
"""KIP-649's switch. No library knows this setting, so it is never passed on."""
ENABLE_IDEMPOTENCE: Final = "enable.idempotence"
GROUP_PROTOCOL: Final = "group.protocol"
MAX_POLL_INTERVAL: Final = "max.poll.interval.ms"
METADATA_MAX_AGE: Final = "metadata.max.age.ms"
TRANSACTIONAL_ID: Final = "transactional.id"

_READ: Final = frozenset(
    {
        *(ACKS, SESSION_TIMEOUT, HEARTBEAT_INTERVAL, CLIENT_ID, ENABLE_DYNAMIC_CONFIG),
        *(ENABLE_IDEMPOTENCE, GROUP_PROTOCOL, MAX_POLL_INTERVAL, METADATA_MAX_AGE, TRANSACTIONAL_ID),
    }
)
"""The settings that the rules check."""


@dataclass(frozen=True, slots=True)
class Library:
    """One client library.

    Args:
        name: Its name in package registries, under which its clients are registered.
        underscores: True if names have underscores instead of Java's dots, and numeric settings are numbers.
        aliases: Further names of the library for a setting, by Java's name.
        session_timeout_ms: Its default session timeout, milliseconds.
        heartbeat_interval_ms: Its default heartbeat interval, milliseconds.
        max_poll_interval_ms: Its default ``max.poll.interval.ms``, if its consumers start with no session timeout above
            that setting; None for libraries without this rule.
    """

    name: str
    underscores: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int | None = None

    @property
    def version(self) -> str:
        """The installed version, or "unknown" if none is installed."""
        try:
            return metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return "unknown"

    def spelled(self, name: str) -> str:
        """Return the library's name of a setting, from Java's."""
        return name.replace(".", "_") if self.underscores else name

    def in_java(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """Return the settings that the rules check, in Java's form; None counts as not set."""
        names = {self.spelled(name): name for name in _READ} | {alias: name for name, alias in self.aliases.items()}
        return {names[key]: _text(value) for key, value in settings.items() if key in names and value is not None}

    def merged(self, settings: Mapping[str, Any], accepted: Mapping[str, str]) -> dict[str, Any]:
        """Return settings of the library, overridden by the accepted dynamic values, which have Java's names."""
        replaced = {self.spelled(ENABLE_DYNAMIC_CONFIG)}
        for name in accepted:
            replaced |= {self.spelled(name), self.aliases.get(name, self.spelled(name))}
        kept = {key: value for key, value in settings.items() if key not in replaced}
        return kept | {self.spelled(name): self._typed(name, value.strip()) for name, value in accepted.items()}

    def _typed(self, name: str, value: str) -> str | int:
        if not self.underscores:
            return value
        if name == ACKS:
            return "all" if value in {"all", "-1"} else int(value)
        return int(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


JAVA: Final = Library("apache-kafka-java")
CONFLUENT_KAFKA: Final = Library(
    "confluent-kafka", aliases={ACKS: "request.required.acks"}, max_poll_interval_ms=300_000
)
KAFKA_PYTHON: Final = Library("kafka-python", underscores=True)
AIOKAFKA: Final = Library("aiokafka", underscores=True, session_timeout_ms=10_000)
