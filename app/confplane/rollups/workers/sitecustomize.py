"""Makes Spark's Python processes quick; Python runs this module from its path at every start.

They import the installed PySpark, and their collections of garbage walk new objects alone.

Spark puts an archive of PySpark's sources first on their path. Modules of an archive are compiled at each import: more
than a second of work for each of the dozen processes that a run starts. :mod:`confplane.rollups.session` puts this
directory on the path. Nothing here may import modules that are not Python's own.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ARCHIVES: Final = (".zip", ".jar")


def without_archives(path: Sequence[str]) -> list[str]:
    """Return a path without the archives of a PySpark whose modules, and Py4J's, are on it as files as well."""
    plain = [entry for entry in path if not entry.endswith(_ARCHIVES)]
    found = PathFinder.find_spec("pyspark", plain)
    if found is None or found.origin is None or PathFinder.find_spec("py4j", plain) is None:
        return list(path)
    # Archives of another Spark stay: it may be of another version, which the workers must then have.
    home = os.path.realpath(os.path.dirname(found.origin)) + os.sep  # noqa: PTH120 - loading pathlib takes its time
    return [entry for entry in path if entry in plain or not os.path.realpath(entry).startswith(home)]


def exempt(phase: str, collection: Mapping[str, int]) -> None:
    """Exempt what a full collection found in use from all later ones.

    PySpark's workers collect after each task, and would walk all imported objects every time, in some 50 ms.
    """
    if phase == "stop" and collection["generation"] == 2:  # noqa: PLR2004 - the oldest one
        gc.freeze()


if __name__ == "sitecustomize":
    gc.callbacks.append(exempt)
    # The imports of a start, and rows, are in no cycles.
    gc.set_threshold(50_000, 10, 10)
    _here: Final = os.path.dirname(__file__)  # noqa: PTH120 - as above
    sys.path[:] = [entry for entry in without_archives(sys.path) if entry != _here]
    # This module hides another one of the same name, such as the system's.
    _other: Final = PathFinder.find_spec("sitecustomize", sys.path)
    if _other is not None and _other.loader is not None:
        _other.loader.exec_module(module_from_spec(_other))
