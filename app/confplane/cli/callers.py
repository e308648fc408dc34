"""The caller of a command's changes, as the trail names it, and the exit code of a command."""

from __future__ import annotations

import getpass
import socket
import time
import uuid
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from confplane.cli import termination
from confplane.cli.output import print_error
from confplane.domain.errors import ConfplaneError, InvalidRequestError, NotFoundError, OutcomeUnknownError
from confplane.services.changes.callers import Caller

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    _Work = Coroutine[None, None, int]

P = ParamSpec("P")

DONE = 0
FAILED = 1
INVALID = 2
UNKNOWN = 3
_DEADLINE_S = 30.0


def caller(reason: str | None, ticket: str | None = None) -> Caller:
    """Return the operator of this command on this machine as a caller; the deadline is half a minute from now."""
    return Caller.operator(
        _operator(),
        socket.gethostname(),
        str(uuid.uuid4()),
        time.monotonic() + _DEADLINE_S,
        reason=reason,
        ticket=ticket,
    )


def run(work: _Work, failure: str, *, resumable: bool = False) -> int:
    """Run a command, print the reason for a failure on standard error, and return the exit code.

    Args:
        work: The command, which returns its exit code.
        failure: The start of the error message of a refused command: "Not imported".
        resumable: True if a failed command may have done part of its work, and another run does the rest.
    """
    try:
        return termination.run(work)
    except OutcomeUnknownError as error:
        return print_error(f"It is unknown whether the change was made. {error}", UNKNOWN)
    except (InvalidRequestError, NotFoundError) as error:
        return print_error(f"{failure}: {error}", INVALID)
    except ConfplaneError as error:
        return print_error(
            f"{'The work is incomplete. Run the command again' if resumable else failure}: {error}", FAILED
        )


def command(failure: str, *, resumable: bool = False) -> Callable[[Callable[P, _Work]], Callable[P, int]]:
    """Return a decorator that makes a function of a coroutine function, which runs it as :func:`run` does."""

    def decorated(work: Callable[P, _Work]) -> Callable[P, int]:
        @wraps(work)
        def done(*arguments: P.args, **options: P.kwargs) -> int:
            return run(work(*arguments, **options), failure, resumable=resumable)

        return done

    return decorated


def pluralize(number: int, one: str, many: str) -> str:
    """Return a number with its noun: "1 entity", "0 entities"."""
    return f"{number} {one if number == 1 else many}"


def counted(number: int) -> str:
    """Return a number of entities."""
    return pluralize(number, "entity", "entities")


def _operator() -> str:
    try:
        login = getpass.getuser()
    except (OSError, KeyError):
        login = "unknown"
    return f"User:{login if login.isprintable() else 'unknown'}@cli"
