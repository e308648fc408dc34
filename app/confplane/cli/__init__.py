"""The ``confplane`` command."""

from confplane.cli.commands import main

__all__ = ["main"]
