"""Kafka's releases that have a catalog, and the metadata versions that identify a cluster's release.

Releases are named by two numbers: "3.9", "4.4". Source: org.apache.kafka.server.common.MetadataVersion, read by
``python -m tests.catalog.generate``.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

ON_ZOOKEEPER: Final = "3.9"
"""The last release that runs on ZooKeeper: the release of each cluster on ZooKeeper."""

_RELEASE: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?![0-9]).*", re.DOTALL)


class _Known(NamedTuple):
    releases: Mapping[str, str]
    levels: Mapping[int, str]


def releases() -> tuple[str, ...]:
    """Return the releases with a catalog, ascending."""
    return tuple(_known().releases)


def newest() -> str:
    """Return the newest release with a catalog."""
    return releases()[-1]


def nearest(release: str) -> str:
    """Return the release whose catalog applies to a cluster of a release.

    Clusters of a newer release use the newest catalog. Clusters of an older one, 3.5 for example, use the oldest.

    Args:
        release: "4.4"; a patch release or a metadata version of it, "4.4.0" or "4.4-IV2", is the same.

    Raises:
        ValueError: The text is not a release of Kafka.
    """
    wanted = _numbers(release)
    return next((known for known in reversed(releases()) if _numbers(known) <= wanted), releases()[0])


def release_of(level: int) -> str:
    """Return the release of a broker whose highest supported metadata version has the given feature level.

    A broker names the level in its response to ApiVersions, as the maximum of the feature ``metadata.version``. A level
    above the known ones means the newest known release; a broker that allows unstable versions
    (``unstable.feature.versions.enable``) may name a level of the release after its own.

    Raises:
        ValueError: The level is below 1, the first level.
    """
    if level < 1:
        raise ValueError(f"{level} is not a feature level of metadata.version: they begin with 1")
    levels = _known().levels
    return newest() if level not in levels else levels[level].partition("-")[0]


def metadata_version(level: int) -> str | None:
    """Return the name of a metadata version, "4.4-IV2", by its feature level; None for an unknown level."""
    return _known().levels.get(level)


def _numbers(release: str) -> tuple[int, int]:
    match = _RELEASE.fullmatch(release)
    if match is None:
        raise ValueError(f"{release!r} is not a release of Kafka, such as {newest()}")
    return int(match[1]), int(match[2])


@cache
def _known() -> _Known:
    loaded = json.loads(resources.files("confplane.domain.catalog").joinpath("releases.json").read_text("utf-8"))
    return _Known(
        MappingProxyType(loaded["releases"]),
        MappingProxyType({int(level): name for level, name in loaded["metadataVersions"].items()}),
    )
