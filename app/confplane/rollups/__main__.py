"""``confplane rollups`` for spark-submit, which runs a file: ``spark-submit .../rollups/__main__.py run all ...``.

Also as ``python -m confplane.rollups``.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    # Run as a file: imports must find the package, not the modules next to this file.
    sys.path[0] = str(Path(__file__).parents[2])

from confplane.cli.commands import main

if __name__ == "__main__":
    main(["rollups", *sys.argv[1:]])
