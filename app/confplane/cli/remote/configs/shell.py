"""``confplane shell``: KIP-21's interactive shell for command lines of ``confplane configs``, on one connection.

On a terminal, the standard library's ``readline`` edits, recalls and completes lines. Python without it (on Windows)
runs the shell with plain input. The history is not stored in a file, because it may have passwords that were set.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Final

import typer

from confplane.cli import termination
from confplane.cli.remote import profiles, session
from confplane.cli.remote.configs import command, usage
from confplane.cli.remote.configs.asyncio_runner import AsyncioRunner
from confplane.cli.remote.configs.completion import DELIMITERS, Completion
from confplane.cli.remote.definitions import keys_of_type
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confplane.cli.remote.configs.arguments import Command
    from confplane.client import AsyncConfplane

_PROMPT: Final = "confplane> "
_ENDS: Final = ("exit", "quit")
_PREFIXES: Final = ("configs", "kafka-configs.sh", "kafka-configs")
"""Words that a line may begin with, so that lines of scripts can be pasted."""


def run(profile: str | None, cluster: str | None) -> int:
    """Run lines of standard input until it ends, and return the exit code."""
    return session.code_of(lambda: _run(profile, cluster))


def _run(profile: str | None, cluster: str | None) -> int:
    chosen = profiles.choose_profile(profile, cluster)
    with AsyncioRunner() as runner:
        client = session.client_of(chosen)
        try:
            if sys.stdin.isatty():
                typer.echo(f"{chosen.url}, cluster {chosen.cluster}. `help` shows the options, `exit` ends.")
                _complete(Completion(lambda kind: runner.run(keys_of_type(client, kind)), ("help", *_ENDS)))
                for line in _typed():
                    _code_of(line, runner, client)
                    if termination.is_requested():
                        return session.FAILED
                return session.DONE
            codes = (_code_of(line, runner, client) for line in sys.stdin)
            return next((code for code in codes if code), session.DONE)
        finally:
            runner.run(client.close())


def _typed() -> Iterator[str]:
    """Yield the lines that are typed, up to the one that ends the shell."""
    while True:
        try:
            line = input(_PROMPT)
        except EOFError:
            typer.echo()
            return
        except KeyboardInterrupt:  # Ctrl-C clears the line, as in other shells; SIGTERM ends the shell
            if termination.is_requested():
                raise
            typer.echo()
            continue
        if line.strip() in _ENDS:
            return
        yield line


def _code_of(line: str, runner: AsyncioRunner, client: AsyncConfplane) -> int:
    """Run one line and return its exit code; errors are printed."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        typer.echo(f"The line can't be read: {error}", err=True)
        return session.FAILED
    if words and words[0] in _PREFIXES:
        words = words[1:]
    elif not words:
        return session.DONE
    if words == ["help"]:
        typer.echo(usage.text(), nl=False)
        return session.DONE
    return command.code_of(words, lambda read: _carried_out(read, runner, client))


def _carried_out(read: Command, runner: AsyncioRunner, client: AsyncConfplane) -> int:
    if read.profile is not None or read.cluster is not None:
        raise InvalidRequestError(
            "The shell keeps to one service and one cluster: start another with --profile and --cluster"
        )
    return termination.run(command.work_of(read)(client), runner.run)


def _complete(completion: Completion) -> None:
    """Complete words by the tabulator key."""
    try:
        import readline  # noqa: PLC0415 - importing it changes how lines are read
    except ImportError:
        return

    def candidate(_: str, state: int) -> str | None:
        found = completion.candidates(readline.get_line_buffer(), readline.get_begidx(), readline.get_endidx())
        return found[state] if state < len(found) else None

    readline.set_completer_delims(DELIMITERS)
    readline.set_completer(candidate)
    readline.parse_and_bind("tab: complete")
