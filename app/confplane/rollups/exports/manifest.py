"""The manifest of a cluster's exports: which files of the lake count, and where the next export continues.

One small JSON file, replaced atomically as the last step. Files that it does not name belong to a running or killed
export, or are superseded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.rollups.sinks.files import Files

FORMAT: Final = 1
VERSION: Final = 1
"""The version of the columns of the exports (rollups/schemas.py), increased by each release that changes them."""


_PATTERNS: Final = "{}[]*?\\"


class UnreadableLakeError(ValueError):
    """A lake has no exports, or none that can be read here; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Day:
    """The files of one day: ``export=NAME/cluster=CLUSTER/day=DAY/export_id=ID``."""

    day: date
    export_id: str
    rows: int
    open: int = 0
    """Rows whose change has no outcome yet."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """One export of a cluster, as of a moment."""

    export_id: str
    """The last export, which determined the moment. Unchanged days have an earlier one."""
    as_of: datetime
    options: Mapping[str, Any]
    """Options of jobs (rollups/job.py), except ``as_of``, and ``catalogs``, which are of the settings of the reader."""
    position: Mapping[str, Any]
    """The position from which the next export continues."""
    without: tuple[str, ...]
    """Columns that were omitted."""
    pseudonyms: str | None
    """The name of the key for the pseudonyms of principals; None if they are in clear text."""
    days: tuple[Day, ...]
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class SupersededFiles:
    """Files that are superseded, and kept for readers that already use them."""

    name: str
    day: date
    export_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Manifest:
    """All exports of one cluster."""

    cluster: str
    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    superseded: tuple[SupersededFiles, ...] = ()

    def with_exports(self, datasets: Mapping[str, Dataset], now: datetime, keep: datetime) -> Manifest:
        """Return the manifest with new exports; files superseded before ``keep`` are forgotten."""
        dropped = [
            SupersededFiles(name, day.day, day.export_id, now)
            for name, dataset in self.datasets.items()
            if name in datasets
            for day in dataset.days
            if day not in datasets[name].days
        ]
        kept = (each for each in self.superseded if each.at >= keep)
        return replace(self, datasets={**self.datasets, **datasets}, superseded=(*kept, *dropped))


def check_root(root: str) -> None:
    """Check that Spark can read files below a directory of this name.

    Raises:
        UnreadableLakeError: Spark can't read them.
    """
    found = [each for each in _PATTERNS if each in root]
    if found:
        raise UnreadableLakeError(f"{root}: the path of a lake must not have {found[0]!r}, a pattern to Spark")


def path_of(root: str, cluster: str) -> str:
    """Return the path of a cluster's manifest."""
    return f"{root}/_exports/{cluster}.json"


def read(files: Files, root: str, cluster: str) -> Manifest | None:
    """Return the manifest of a cluster, or None if nothing was exported.

    Raises:
        UnreadableLakeError: Another release wrote it.
    """
    path = path_of(root, cluster)
    text = files.read(path)
    return None if text is None else parse(text, path)


def parse(text: str, path: str) -> Manifest:
    """Read the text of a manifest.

    Raises:
        UnreadableLakeError: Another release wrote it.
    """
    found = json.loads(text)
    if found.get("format") != FORMAT:
        raise UnreadableLakeError(f"{path} has a format that is not known here: export with --full to another path")
    return Manifest(
        found["cluster"],
        {name: _dataset(each) for name, each in found["datasets"].items()},
        tuple(
            SupersededFiles(
                **{**each, "day": date.fromisoformat(each["day"]), "at": datetime.fromisoformat(each["at"])}
            )
            for each in found["superseded"]
        ),
    )


def write(files: Files, root: str, manifest: Manifest) -> None:
    """Replace the manifest of a cluster."""
    found = {
        "format": FORMAT,
        "cluster": manifest.cluster,
        "datasets": {name: _plain(each) for name, each in manifest.datasets.items()},
        "superseded": [_plain(each) for each in manifest.superseded],
    }
    files.replace(path_of(root, manifest.cluster), json.dumps(found, ensure_ascii=False, indent=1) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "__slots__"):
        return {name: _plain(getattr(value, name)) for name in value.__slots__}
    return value


def _dataset(found: Mapping[str, Any]) -> Dataset:
    days = (Day(**{**day, "day": date.fromisoformat(day["day"])}) for day in found["days"])
    return Dataset(
        **{
            **found,
            "as_of": datetime.fromisoformat(found["as_of"]),
            "without": tuple(found["without"]),
            "days": tuple(days),
        }
    )
