"""Subscriptions to the metrics of clients (KIP-714): the configs that a cluster accepts, and the effective ones.

Source: server/src/main/java/org/apache/kafka/server/metrics/ClientMetricsConfigs.java,
core/src/main/scala/kafka/server/ConfigHelper.scala (``createClientMetricsConfigEntry``).
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from confplane.domain.broker_levels import ConfigSource, EffectiveConfigEntry, SynonymValue, printed
from confplane.domain.definitions import ConfigKind, ConfigValueError, parse
from confplane.domain.errors import ErrorList, InvalidConfigError, InvalidRequestError
from confplane.domain.numbers import java_trim
from confplane.domain.suggestions import suggestion
from confplane.domain.texts import clipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.config_rules import ConfigValue
    from confplane.domain.definitions import Catalog

SELECTORS: Final = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The properties of a client that ``match`` may name."""

_NO_POINTERS: Final[Mapping[str, str]] = MappingProxyType({})
_INTERVAL: Final = "interval.ms"
_LEAST_MS: Final = 100
_MOST_MS: Final = 3_600_000
_MATCH: Final = "match"
_JAVA_ALONE: Final = re.compile(
    r"\\[hHRXGkpPQEecN0VzZx1-9]|&&|\[[^\]]*\[|\(\?<[A-Za-z]|(?<=.)\(\?[a-zA-Z-]+[:)]", re.DOTALL
)
"""Java's syntax that Python's regular expressions lack, or interpret differently."""
_PYTHON_ALONE: Final = re.compile(r"\{(?![0-9])|\(\?[P#aLu]")
"""Syntax that Java rejects and Python accepts."""
_ESCAPED: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


def check_client_metrics(
    catalog: Catalog,
    after: Mapping[str, str],
    *,
    stored: Mapping[str, str] = _NO_POINTERS,
    pointers: Mapping[str, str] = _NO_POINTERS,
) -> list[str]:
    """Check the whole map that a change would leave on a subscription.

    Args:
        catalog: The definitions of the cluster's release.
        after: Everything that would be stored.
        stored: The current map. Its invalid entries remain, with a warning.
        pointers: Key -> JSON pointer, for errors.

    Returns:
        Warnings, each a sentence.

    Raises:
        InvalidRequestError: An unknown key, or an interval below 100 ms or above an hour (42).
        InvalidConfigError: A value of another type, or a selector of ``match`` that brokers can't read (40).
    """
    warnings: list[str] = []
    errors = ErrorList()
    for name in sorted(after):
        try:
            warnings += _check_value(catalog, name, after[name])
        except (InvalidConfigError, InvalidRequestError) as error:
            if stored.get(name) != after[name]:
                error.pointer = pointers.get(name)
                errors.add(error)
            else:
                warnings.append(f"Brokers don't use the stored {clipped(name)}: {error.detail}")
    errors.raise_all()
    return warnings


def _check_value(catalog: Catalog, name: str, value: str) -> list[str]:
    definition = catalog.client_metrics.get(name)
    if definition is None:
        raise InvalidRequestError(
            f"Unknown client metrics configuration: {clipped(name)}"
            f"{suggestion(catalog, ConfigKind.CLIENT_METRICS, name)}"
        )
    try:
        parsed = parse(definition, value)
    except ConfigValueError as error:
        raise InvalidConfigError(str(error)) from None
    if name == _INTERVAL and isinstance(parsed, int) and not _LEAST_MS <= parsed <= _MOST_MS:
        raise InvalidRequestError(f"{_INTERVAL} must be at least {_LEAST_MS} and at most {_MOST_MS} (1 hour)")
    return _check_selectors(parsed) if name == _MATCH else []


def _check_selectors(parsed: ConfigValue) -> list[str]:
    """Check that each selector is a property of a client, ``=``, and a regular expression, without another ``=``."""
    warnings = []
    for selector in parsed if isinstance(parsed, list) else []:
        # As Java splits: empty parts at the end do not count.
        parts = selector.rstrip("=").split("=")
        if len(parts) != 2 or java_trim(parts[0]) not in SELECTORS:  # noqa: PLR2004 - a name and an expression
            raise InvalidConfigError(
                f"{_MATCH}: the selector {clipped(selector)} must be name=expression, where name is one of "
                f"{', '.join(SELECTORS)}"
            )
        expression = java_trim(parts[1])
        if _JAVA_ALONE.search(expression):
            warnings.append(f"{_MATCH}: brokers check the expression {clipped(expression)}, not this service")
        elif not _compiles(expression):
            raise InvalidConfigError(f"{_MATCH}: {clipped(expression)} is not a regular expression")
    return warnings


def _compiles(expression: str) -> bool:
    if _PYTHON_ALONE.search(_ESCAPED.sub("", expression)):
        return False
    try:
        re.compile(expression)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def effective_client_metrics(catalog: Catalog, name: str, config: Mapping[str, str]) -> EffectiveConfigEntry:
    """Return the effective value of one config of a subscription.

    A stored key that is unknown is returned like a secret.
    """
    definition = catalog.client_metrics.get(name)
    sensitive = definition is None or definition.sensitive
    stored = config.get(name)
    own = None if stored is None or sensitive else printed(definition, stored)
    source = ConfigSource.DEFAULT_CONFIG if stored is None else ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
    return EffectiveConfigEntry(
        name=name,
        value=own if own is not None or definition is None else definition.default,
        source=source,
        synonyms=() if stored is None else (SynonymValue(name, own, source),),
        read_only=False,
        sensitive=sensitive,
        type=None if definition is None else definition.type,
    )


def describe_client_metrics(catalog: Catalog, config: Mapping[str, str]) -> list[EffectiveConfigEntry]:
    """Return all configs of a subscription, by name: those that Kafka defines, and all that are stored."""
    names = config.keys() | {name for name, found in catalog.client_metrics.items() if not found.extra}
    return [effective_client_metrics(catalog, name, config) for name in sorted(names)]
