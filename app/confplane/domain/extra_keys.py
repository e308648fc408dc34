"""Keys that no release of Kafka defines, and that the settings of a cluster declare: those of vendors and of plug-ins.

A declared key has a definition like Kafka's own keys, so it is validated, shown and compared like them. A declared
prefix, such as ``confluent.*``, defines all keys that begin with it; exact names and longer prefixes have precedence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from confplane.domain.broker_keys import is_password
from confplane.domain.definitions import (
    SCOPES,
    ConfigDef,
    ConfigKind,
    Prefix,
    Scope,
    catalog_of,
    defined_names,
    releases_with,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from confplane.domain.definitions import Catalog, ConfigType

BELOW: Final = ".*"
"""The end of a declared prefix."""
_LISTENER: Final = "listener.name."
_REST: Final = re.compile(r"[A-Za-z0-9._-]+")
"""The rest of a key below a prefix."""


def extra_definition(
    kind: ConfigKind, name: str, of_type: ConfigType, *, sensitive: bool, description: str | None
) -> ConfigDef:
    """Return the definition of a declared key of topics, brokers, groups or subscriptions to the metrics of clients.

    Args:
        kind: The component that has the key.
        name: The key, or a prefix that ends with :data:`BELOW`.
        of_type: The type of its values.
        sensitive: Its values are secrets.
        description: What it does; None if the settings do not describe it.

    Raises:
        ValueError: Kafka defines the key, or a key below the prefix; it has a listener's prefix; or brokers store its
            values as passwords although it is not declared as a secret.
    """
    if name.endswith(BELOW):
        below = next((known for known in defined_names(kind) if known.startswith(name.removesuffix("*"))), None)
        if below is not None:
            raise ValueError(f"{name} has a {kind} config of Kafka below it, {below}: declare a longer prefix")
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


class _PrefixedDefinitions(Mapping[str, ConfigDef]):
    """Definitions by name, with those of all keys below some prefixes. Only exact names are iterated over."""

    def __init__(self, kind: ConfigKind, exact: Mapping[str, ConfigDef], below: Iterable[ConfigDef]) -> None:
        self._is_broker = kind is ConfigKind.BROKER
        self._exact = exact
        self._below = sorted(((each.name.removesuffix("*"), each) for each in below), key=lambda of: -len(of[0]))

    def __getitem__(self, name: str) -> ConfigDef:
        found = self._exact.get(name)
        if found is not None:
            return found
        for prefix, each in self._below:
            if name.startswith(prefix) and _REST.fullmatch(name, len(prefix)):
                return replace(each, name=name, secret=each.secret or (self._is_broker and is_password(name)))
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._exact)

    def __len__(self) -> int:
        return len(self._exact)


class Catalogs:
    """The catalogs of one cluster: the definitions of each release, and the declared keys.

    Args:
        extra: The declared keys and prefixes, each with its kind.
    """

    def __init__(self, extra: Iterable[tuple[ConfigKind, ConfigDef]] = ()) -> None:
        self._extra = tuple(extra)
        self._extended: dict[Catalog, Catalog] = {}

    def __reduce__(self) -> tuple[type[Catalogs], tuple[tuple[tuple[ConfigKind, ConfigDef], ...]]]:
        # Catalogs have mappings that can't be pickled, and tasks of rollups make their own.
        return Catalogs, (self._extra,)

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
        # A release without any config of a kind has no entities of the kind.
        extra = [(kind, definition) for kind, definition in self._extra if plain.of(kind)]
        prefixes = tuple(each for each in extra if each[1].name.endswith(BELOW))
        members: dict[str, Any] = {}
        for kind in dict.fromkeys(kind for kind, _ in extra):
            exact = {each.name: each for of, each in extra if of is kind and (of, each) not in prefixes}
            configs = MappingProxyType({**plain.of(kind), **exact})
            below = [each for of, each in prefixes if of is kind]
            members[kind.name.lower()] = _PrefixedDefinitions(kind, configs, below) if below else configs
        return replace(plain, **members, prefixes=prefixes)
