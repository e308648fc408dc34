"""The run of one command line of ``confplane configs``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import typer

import confplane
from confplane.cli.remote import session
from confplane.cli.remote.configs import arguments, options, usage
from confplane.cli.remote.configs.alter import altering
from confplane.cli.remote.configs.describe import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from confplane.cli.remote.configs.arguments import Command
    from confplane.client import AsyncConfplane


def run(words: Sequence[str]) -> int:
    """Run a command line on its own connection, and return the exit code."""
    return code_of(words, lambda command: session.run_with_client(command.profile, command.cluster, work_of(command)))


def code_of(words: Sequence[str], carried_out: Callable[[Command], int]) -> int:
    """Read and execute a command line, and return the exit code: that of Kafka's tool, 0 or 1, or 3.

    Help and version are printed here. Errors are printed on standard error.
    """

    def work() -> int:
        given = options.split(words)
        if given.has("help"):
            typer.echo(usage.text(), nl=False)
        elif given.has("version"):
            typer.echo(f"confplane {confplane.__version__}")
        elif not words:
            typer.echo(usage.text(), nl=False, err=True)
            return session.FAILED
        else:
            return carried_out(arguments.read(given))
        return session.DONE

    code = session.code_of(work)
    return session.FAILED if code == session.INVALID else code


def work_of(command: Command) -> Callable[[AsyncConfplane], Coroutine[Any, Any, int]]:
    """Return the function that executes a command with a client.

    Raises:
        InvalidRequestError: The keys or values of a change are not valid.
    """
    return altering(command) if command.alter else partial(describe, command=command)
