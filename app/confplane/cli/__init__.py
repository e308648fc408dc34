"""The ``confplane`` command."""

from app.cli.commands import main

__all__ = ["main"]
