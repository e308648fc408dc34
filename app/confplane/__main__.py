"""``confplane``, also as ``python -m confplane``."""

from __future__ import annotations

from confplane.cli import main

if __name__ == "__main__":
    main()
