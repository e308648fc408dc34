"""Keys that no release of Kafka defines, and that the settings of a cluster declare: those of vendors and of plug-ins.

A declared key has a definition like Kafka's own keys, so it is validated, shown and compared like them.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.broker_keys import is_password
from confplane.domain.definitions import SCOPES, ConfigDef, ConfigKind, Prefix, Scope, catalog_of, releases_with

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confplane.domain.definitions import Catalog, ConfigType

_LISTENER: Final = "listener.name."


def extra_definition(
    kind: ConfigKind, name: str, of_type: ConfigType, *, sensitive: bool, description: str | None
) -> ConfigDef:
    """Return the definition of a declared key of topics, brokers, groups or subscriptions to the metrics of clients.

    Raises:
        ValueError: Kafka defines the key, the key has a listener's prefix, or brokers store its values as passwords
            although it is not declared as a secret.
    """
    known = releases_with(kind, name)
    if known:
        raise ValueError(f"{name} is a {kind} config of Kafka {known[-1]}: only keys that Kafka lacks can be declared")
    is_broker = kind is ConfigKind.BROKER
    found = ConfigDef(
        name=name,
        type=of_type,
        default=None,
        required=False,
        importance="MEDIUM",
        valid=None,
        internal=False,
        scope=SCOPES.get(kind, Scope.CLUSTER_WIDE),
        prefix=Prefix.LISTENER if is_broker else None,
        secret=sensitive,
        extra=True,
        description=description,
    )
    if is_broker and name.startswith(_LISTENER):
        raise ValueError(f"{name} has a listener's prefix: declare the key without it, and both forms are known")
    if is_broker and is_password(name) and not found.sensitive:
        raise ValueError(f"{name} is a secret, because brokers store keys with such an end as passwords")
    return found


class Catalogs:
    """The catalogs of one cluster: the definitions of each release, and the declared keys.

    Args:
        extra: The declared keys, each with its kind.
    """

    def __init__(self, extra: Iterable[tuple[ConfigKind, ConfigDef]] = ()) -> None:
        self._extra = tuple(extra)
        self._extended: dict[Catalog, Catalog] = {}

    def of(self, release: str) -> Catalog:
        """Return the catalog of a release; the same object each time.

        Raises:
            ValueError: The text is not a release of Kafka.
        """
        plain = catalog_of(release)
        if not self._extra:
            return plain
        found = self._extended.get(plain)
        if found is None:
            found = self._extended[plain] = self._extend(plain)
        return found

    def _extend(self, plain: Catalog) -> Catalog:
        added: dict[str, dict[str, ConfigDef]] = {}
        for kind, definition in self._extra:
            # A release without any config of a kind has no entities of the kind.
            if defined := plain.of(kind):
                added.setdefault(kind.name.lower(), dict(defined))[definition.name] = definition
        members: dict[str, Any] = {member: MappingProxyType(configs) for member, configs in added.items()}
        return replace(plain, **members)
