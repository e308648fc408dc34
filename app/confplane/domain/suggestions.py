"""Suggestions for unknown keys: a close name, or the kind of config that has the name."""

from __future__ import annotations

from difflib import SequenceMatcher
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from confplane.domain.definitions import ConfigKind
from confplane.domain.quotas import QUOTA_KEYS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from confplane.domain.definitions import Catalog

_TITLES: Final = {
    ConfigKind.BROKER: "broker config",
    ConfigKind.TOPIC: "topic config",
    ConfigKind.GROUP: "group config",
    ConfigKind.CLIENT_METRICS: "client metrics config",
    ConfigKind.PRODUCER: "client config",
    ConfigKind.CONSUMER: "client config",
}
_FARTHEST: Final = 3
"""Difference in length of two close names, at most: it bounds the names that are compared."""
_LONGEST: Final = 100
_CLOSE: Final = 0.75


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is most like another one; None if none is close."""
    matcher = SequenceMatcher(None, "", name, autojunk=False)
    best, best_ratio = None, _CLOSE
    for each in names:
        if abs(len(each) - len(name)) > _FARTHEST or len(name) > _LONGEST:
            continue
        matcher.set_seq1(each)
        if matcher.quick_ratio() >= best_ratio and (ratio := matcher.ratio()) >= best_ratio:
            best, best_ratio = each, ratio
    return best


@lru_cache(maxsize=1024)
def suggestion(catalog: Catalog, kind: ConfigKind, name: str) -> str:
    """Return the end of a message about a key that can't be set: "; did you mean ...?", or an empty text.

    A key that another kind of config has under this name comes first, then a close name of the same kind, then a close
    name of another kind.
    """
    own = _TITLES[kind]
    families = [(title, names) for title, names in _families(catalog) if title != own]
    for title, names in families:
        if name in names:
            return f"; it is a {title}{_of_brokers(catalog, kind, name)}"
    if name in catalog.of(kind):
        return ""
    close = nearest_name(name, catalog.of(kind))
    if close is not None:
        return f"; did you mean {close}?"
    for title, names in families:
        if (close := nearest_name(name, names)) is not None:
            return f"; did you mean the {title} {close}?"
    return ""


def _families(catalog: Catalog) -> Iterator[tuple[str, Collection[str]]]:
    yield "quota", QUOTA_KEYS
    for kind, title in _TITLES.items():
        yield title, catalog.of(kind)


def _of_brokers(catalog: Catalog, kind: ConfigKind, name: str) -> str:
    """Return the broker config that a topic's config falls back on, if brokers are meant."""
    found = catalog.topic.get(name)
    if kind is not ConfigKind.BROKER or found is None or not found.synonyms:
        return ""
    return f", and that of brokers is {found.synonyms[0].name}"
