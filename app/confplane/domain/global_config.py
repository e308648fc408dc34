"""KIP-5's single config that all brokers share: the keys it may have, and the format of its old znode.

Kafka keeps such values as the dynamic default of all brokers (KIP-226). KIP-5 names configs that always stay with each
broker, and a znode of its own, ``/brokers/config``, that no release of Kafka ever read.

Source: KIP-5.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.broker_keys import definition_of, is_password, is_sensitive
from confplane.domain.broker_levels import PROVIDERS, DynamicLevel, is_per_broker, printed
from confplane.domain.brokers import check_level
from confplane.domain.enums import StrEnum
from confplane.domain.errors import ConfplaneError, InvalidRequestError
from confplane.domain.texts import clipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confplane.domain.definitions import Catalog

LOCAL_ONLY: Final = frozenset(
    {
        "broker.id",
        "host.name",
        "port",
        "advertised.host.name",
        "advertised.port",
        "listeners",
        "advertised.listeners",
        # Spelled as in the KIP.
        "brokerId",
        "host",
        "advertisedHost",
        "advertisedPort",
    }
)
"""Configs that distinguish brokers from each other, and so can't be shared."""

_STAYS: Final = "it tells one broker from the others"


def check_shared(keys: Iterable[tuple[str, str | None]]) -> None:
    """Refuse keys that can't be shared by brokers, before any other check.

    Args:
        keys: Each key with the JSON pointer for its error.

    Raises:
        InvalidRequestError: The text names all such keys; the pointer is that of the first.
    """
    local = [(key, pointer) for key, pointer in keys if key in LOCAL_ONLY]
    if local:
        listed = ", ".join(key for key, _ in local)
        raise InvalidRequestError(
            f"Not a global config: {listed}; {_STAYS}, so it stays in each broker's server.properties",
            pointer=local[0][1],
        )


class ImportDecision(StrEnum):
    """The import's decision on one entry of the old znode."""

    IMPORT = "import"
    """The entry is imported into the cluster default."""
    SAME = "already set"
    """The cluster default has this value already."""
    KEPT = "kept"
    """The cluster default has another value, which remains unless the import overwrites it."""
    STAYS = "server.properties"
    """Brokers read the config only from their own files."""
    UNKNOWN = "unknown"
    """Kafka has no such broker config."""
    REFUSED = "refused"
    """The config could be a default of all brokers, but not with this value."""


@dataclass(frozen=True, slots=True)
class LegacyEntry:
    """One entry of the old znode, and the decision on it."""

    key: str
    value: str | None
    """The value as it would be stored. None if it must not be shown, or is not text."""
    decision: ImportDecision
    reason: str | None = None
    """The reason, if the decision alone does not give it."""


def parse_legacy(data: bytes) -> dict[str, str | None]:
    """Read the old znode: ``{"version":"1","config":{...}}``, where the version may be a number or missing.

    Returns:
        The config; numbers and booleans as text, None for values that are neither these nor strings.

    Raises:
        ValueError: The data can't be read; the message is the rest of a sentence about the znode, without a value.
    """
    try:
        content = json.loads(data, parse_int=str, parse_float=str, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ValueError("does not hold JSON") from None
    if not isinstance(content, dict):
        raise ValueError("holds JSON that is not an object")  # noqa: TRY004 - about data, not about an argument
    if content.get("version", "1") != "1":
        raise ValueError("has a version other than 1, the only supported version")
    config = content.get("config")
    if not isinstance(config, dict):
        raise ValueError("has no object under 'config'")  # noqa: TRY004 - the same
    return {key: _text(value) for key, value in config.items()}


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def decide(
    catalog: Catalog, legacy: Mapping[str, str | None], stored: Mapping[str, str], *, overwrite: bool = False
) -> list[LegacyEntry]:
    """Decide on each entry by its key; contradictions between entries are found later, in the resulting map.

    Args:
        catalog: The definitions of the cluster's release.
        legacy: The result of :func:`parse_legacy`.
        stored: The cluster default as it currently is.
        overwrite: Replace other values of the cluster default.
    """
    return [_decide(catalog, key, legacy[key], stored, overwrite=overwrite) for key in sorted(legacy)]


def _decide(
    catalog: Catalog, key: str, value: str | None, stored: Mapping[str, str], *, overwrite: bool
) -> LegacyEntry:
    reason = _why_it_stays(catalog, key)
    if reason is not None:
        hidden = is_sensitive(catalog, key) and key not in LOCAL_ONLY
        return LegacyEntry(key, None if hidden else value, ImportDecision.STAYS, reason)
    definition = definition_of(catalog, key)
    if definition is None:
        # The meaning of the config is unknown, so its value may be a secret.
        return LegacyEntry(key, None, ImportDecision.UNKNOWN, "Kafka has no broker config of this name")
    reason = _fault(catalog, key, value, stored)
    current = stored.get(key)
    if reason is not None:
        decision = ImportDecision.REFUSED
    elif current is None:
        decision = ImportDecision.IMPORT
    elif printed(definition, current) == printed(definition, value or ""):
        decision = ImportDecision.SAME
    elif overwrite:
        decision, reason = ImportDecision.IMPORT, f"takes the place of {clipped(current)}"
    else:
        decision, reason = ImportDecision.KEPT, f"the cluster default is {clipped(current)}; --overwrite replaces it"
    return LegacyEntry(key, value, decision, reason)


def _fault(catalog: Catalog, key: str, value: str | None, stored: Mapping[str, str]) -> str | None:
    if value is None:
        return "the value is neither text nor a number"
    providers = {PROVIDERS: stored[PROVIDERS]} if PROVIDERS in stored else {}
    try:
        check_level(catalog, {**providers, key: value}, level=DynamicLevel.DEFAULT, stored=providers)
    except ConfplaneError as error:
        return error.detail
    return None


def _why_it_stays(catalog: Catalog, key: str) -> str | None:
    exact = catalog.broker.get(key)
    if key in LOCAL_ONLY:
        return _STAYS
    if is_password(key) or (exact is not None and exact.sensitive):
        return "it is a secret, and secrets can be set for one broker at a time only"
    if exact is not None and not exact.dynamic:
        return "brokers read it when they start, and never change it while they run"
    if exact is not None and exact.prefix_only:
        return "it is dynamic only with a listener's prefix"
    if is_per_broker(catalog, key) and definition_of(catalog, key) is not None:
        return "it can be set for one broker at a time only"
    return None
