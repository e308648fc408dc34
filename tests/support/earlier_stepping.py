"""``tests.support.stepping`` of the earlier release (tests/support/releases.py), with more ends of a transaction.

It runs from that release's files and imports only from them.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from tests.support import stepping

_commands: Final = importlib.import_module("app.cli.commands")
_store: Final = importlib.import_module("app.store")

_TRANSACTIONS: Final = ("set_freeze", "set_layout", "remove")


class Steps(stepping.Steps):
    """Its steps; ``transaction`` covers every kind of change."""

    def put_on(self) -> None:
        """Wrap the calls."""
        super().put_on()
        for name in _TRANSACTIONS:
            self._wrap(_store.ZooKeeperStore, name, after="transaction")


if __name__ == "__main__":
    program: Any = stepping
    program.Steps = Steps
    stepping.put_on()
    _commands.main()
