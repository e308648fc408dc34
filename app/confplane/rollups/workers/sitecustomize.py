"""Makes Spark's Python processes faster. Python runs this module from its path at every start.

They import the installed PySpark, and their garbage collections visit only new objects.

Spark puts an archive of PySpark's sources first on their path. Modules of an archive are compiled at each import, which
takes more than a second for each of the dozen processes of a run. :mod:`confplane.rollups.session` puts this directory
on the path. Nothing here may import modules that are not Python's own.
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
    """Return a path without PySpark archives, if the modules of PySpark and Py4J are also on it as files."""
    plain = [entry for entry in path if not entry.endswith(_ARCHIVES)]
    found = PathFinder.find_spec("pyspark", plain)
    if found is None or found.origin is None or PathFinder.find_spec("py4j", plain) is None:
        return list(path)
    # Archives of another Spark are kept: it may have another version, which the workers must use.
    home = os.path.realpath(os.path.dirname(found.origin)) + os.sep  # noqa: PTH120 - loading pathlib takes its time
    return [entry for entry in path if entry in plain or not os.path.realpath(entry).startswith(home)]


def exempt(phase: str, collection: Mapping[str, int]) -> None:
    """Exempt the objects that survive a full collection from all later ones.

    PySpark's workers collect after each task, and would visit all imported objects every time, in about 50 ms.
    """
    if phase == "stop" and collection["generation"] == 2:  # noqa: PLR2004 - the oldest one
        gc.freeze()


if __name__ == "sitecustomize":
    gc.callbacks.append(exempt)
    # The imports of a start, and rows, are not in cycles.
    gc.set_threshold(50_000, 10, 10)
    _here: Final = os.path.dirname(__file__)  # noqa: PTH120 - as above
    sys.path[:] = [entry for entry in without_archives(sys.path) if entry != _here]
    # This module hides another one of the same name, such as the system's.
    _other: Final = PathFinder.find_spec("sitecustomize", sys.path)
    if _other is not None and _other.loader is not None:
        _other.loader.exec_module(module_from_spec(_other))
