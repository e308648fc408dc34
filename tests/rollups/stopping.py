"""A command that stops at a function of its own, and waits there to be killed.

``python -m tests.rollups.stopping MODULE:NAME ARGUMENT...``: runs ``confplane ARGUMENT...``, and says :data:`STOPPED` in
place of the function, which may be one of a class.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Any, Final

from confplane.cli.commands import cli

STOPPED: Final = "stopped at "


def main(place: str, *arguments: str) -> None:
    """Run the command."""
    module, _, names = place.partition(":")
    *owners, name = names.split(".")
    owner: Any = import_module(module)
    for each in owners:
        owner = getattr(owner, each)

    def stop(*_: object, **__: object) -> None:
        sys.stdout.write(f"{STOPPED}{place}\n")
        sys.stdout.flush()
        threading.Event().wait()

    getattr(owner, name)  # a function of another name would never stop the command
    setattr(owner, name, stop)
    cli([*arguments], prog_name="confplane")


if __name__ == "__main__":
    main(*sys.argv[1:])
