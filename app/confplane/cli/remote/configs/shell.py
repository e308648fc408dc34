"""``confplane shell``: KIP-21's interactive shell for command lines of ``confplane configs``, on one connection.

On a terminal, the standard library's ``readline`` edits, recalls and completes lines. Python without it (on Windows)
runs the shell with plain input. The history is not stored in a file, because it may have passwords that were set.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from confplane.cli import termination
from confplane.cli.command_group import CommandGroup
from confplane.cli.output import echo
from confplane.cli.remote import profiles, session
from confplane.cli.remote.configs import arguments, command, options
from confplane.cli.remote.entities import keys_of_type
from confplane.cli.remote.options import ClusterName, ProfileName
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import TracebackType

    from typing_extensions import Self

    from confplane.cli.remote.configs.arguments import Command
    from confplane.client import AsyncConfplane


_PROMPT: Final = "confplane> "
_ENDS: Final = ("exit", "quit")
_PREFIXES: Final = ("configs", "kafka-configs.sh", "kafka-configs")
"""Words that a line may begin with, so that lines of scripts can be pasted."""


commands = CommandGroup()


@commands.command(
    epilog="Example:\n\n"
    "    confplane shell --cluster payments\n\n"
    "    confplane> --describe --user alice\n\n"
    "Exit codes: 0 at the end; 1 the service could not be reached at the start; 2 the profile is not valid. Without a"
    " terminal: those of `confplane configs`, of the first line that failed."
)
def shell(*, cluster: ClusterName = None, profile: ProfileName = None) -> None:
    """Run command lines of `confplane configs` one after another, on one connection.

    On a terminal lines can be edited and completed, and a failed line does not end the shell. Without a terminal the
    lines come from standard input, and the first that fails ends the shell with its exit code. `help` shows the
    options, `exit` and Ctrl-D end the shell.
    """
    raise typer.Exit(run(profile, cluster))


def run(profile: str | None, cluster: str | None) -> int:
    """Run lines of standard input until it ends, and return the exit code."""
    return session.code_of(lambda: _run(profile, cluster))


def _run(profile: str | None, cluster: str | None) -> int:
    chosen = profiles.choose_profile(profile, cluster)
    with AsyncioRunner() as runner:
        client = session.client_of(chosen)
        try:
            if sys.stdin.isatty():
                echo(f"{chosen.url}, cluster {chosen.cluster}. `help` shows the options, `exit` ends.")
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
            echo()
            return
        except KeyboardInterrupt:  # Ctrl-C clears the line, as in other shells; SIGTERM ends the shell
            if termination.is_requested():
                raise
            echo()
            continue
        if line.strip() in _ENDS:
            return
        yield line


def _code_of(line: str, runner: AsyncioRunner, client: AsyncConfplane) -> int:
    """Run one line and return its exit code; errors are printed."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        echo(f"The line can't be read: {error}", err=True)
        return session.FAILED
    if words and words[0] in _PREFIXES:
        words = words[1:]
    elif not words:
        return session.DONE
    if words == ["help"]:
        echo(options.usage(), nl=False)
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


DELIMITERS: Final = " ,="
"""Characters between the words that are completed: a key follows a blank or a comma."""
_KEY_OPTIONS: Final = {f"--{name}" for name in ("add-config", "added-config", "delete-config", "deleted-config")}
_TYPE: Final = "--entity-type"


class Completion:
    """Completions of one shell; each kind of keys is requested once.

    Args:
        keys: Returns the valid keys of an entity type, given by its name in the API. Empty if they are not known.
        commands: Words that are complete lines.
    """

    def __init__(self, keys: Callable[[str], list[str]], commands: tuple[str, ...]) -> None:
        self._keys = cache(keys)
        self._commands = commands

    def candidates(self, line: str, begin: int, end: int) -> list[str]:
        """Return the completions of a part of a line, each with the character that follows it."""
        before, text = line[:begin], line[begin:end]
        words = before.split()
        option = next((word for word in reversed(words) if word.startswith("-")), "")
        if before.endswith("="):
            found = []
        elif option in _KEY_OPTIONS and before.endswith((",", f"{option} ")):
            mark = "=" if "add" in option else ""
            found = [f"{key}{mark}" for key in self._keys(_kind(line.split()))]
        elif before.endswith(f"{_TYPE} "):
            found = [f"{name} " for name in arguments.TYPES]
        elif text.startswith("-"):
            found = [f"--{name} " for name in options.NAMES if name not in options.REPLACED]
        else:
            found = [f"{name} " for name in self._commands if not words]
        return [each for each in found if each.startswith(text)]


def _kind(words: list[str]) -> str:
    """Return the type of a line's entity; a user has keys of client configs in addition to quotas."""
    kinds = arguments.types_of(words)
    return "user" if "user" in kinds else next(iter(kinds), "topic")


T = TypeVar("T")

if sys.version_info >= (3, 11):
    from asyncio import Runner as AsyncioRunner
else:

    class AsyncioRunner:
        """One event loop for several coroutines, run one after the other."""

        def __enter__(self) -> Self:
            self._loop = asyncio.new_event_loop()
            return self

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            try:
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
                self._loop.run_until_complete(self._loop.shutdown_default_executor())
            finally:
                self._loop.close()

        def run(self, work: Coroutine[Any, Any, T]) -> T:
            """Run a coroutine to its end; an interrupt cancels it."""
            task = self._loop.create_task(work)
            try:
                return self._loop.run_until_complete(task)
            except KeyboardInterrupt:
                task.cancel()
                self._loop.run_until_complete(asyncio.wait({task}))
                raise
