"""Runs a command over the API: its connection, its error messages, its exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from confplane.cli import termination
from confplane.cli.output import echo
from confplane.cli.remote import profiles
from confplane.cli.remote.credentials import tls_of, token_of
from confplane.client import AsyncConfplane, ClientError, ConnectionFailedError, ProblemError
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from confplane.cli.remote.profiles import Profile

DONE: Final = 0
FAILED: Final = 1
INVALID: Final = 2
INTERRUPTED: Final = 130
"""Exit code after Ctrl-C; after SIGTERM it becomes 143."""
UNKNOWN: Final = 3
"""Exit code of a write whose response was lost, even after retries: it may or may not be applied."""
_CHECK_URL: Final = "Check the URL: `confplane profiles list` shows the profiles and their URLs."
_NEXT_BY_TYPE: Final = {
    "unknown-route": _CHECK_URL,
    "unknown-cluster": "`confplane clusters` lists the clusters; --cluster names one.",
}
"""The next step after a problem, by its type."""
_NEXT: Final = {
    401: "Check the token: `confplane profiles list` shows its place; `confplane login` renews a login.",
    403: "`confplane whoami` shows your grants.",
    412: "Read the entity again: `confplane get ENTITY --json` has its ETags.",
}
"""The next step after a problem, by its HTTP status."""


def run(profile: str | None, cluster: str | None, work: Callable[[AsyncConfplane], Awaitable[int]]) -> typer.Exit:
    """Run a command's work with a client of the chosen profile, and return the exit with its code.

    Errors of the work are printed on standard error. The client retries requests without an answer.
    """
    return typer.Exit(code_of(lambda: run_with_client(profile, cluster, work)))


def run_with_client(profile: str | None, cluster: str | None, work: Callable[[AsyncConfplane], Awaitable[int]]) -> int:
    """Do a command's work with a client of the chosen profile, and return its exit code. Errors are raised."""
    return termination.run(_run(profiles.choose_profile(profile, cluster), work))


def code_of(work: Callable[[], int]) -> int:
    """Do a piece of work and return its exit code; its error is printed on standard error."""
    try:
        return work()
    except (InvalidRequestError, profiles.ProfileError) as error:
        echo(str(error), err=True)
        return INVALID
    except ProblemError as error:
        echo(problem_text(error), err=True)
        return UNKNOWN if error.may_be_applied else FAILED
    except ConnectionFailedError as error:
        echo(_no_answer(error), err=True)
        return UNKNOWN if error.may_be_applied else FAILED
    except ClientError as error:
        echo(str(error), err=True)
        return UNKNOWN if error.may_be_applied else FAILED
    except KeyboardInterrupt:
        echo("Interrupted", err=True)
        return INTERRUPTED


def client_of(profile: Profile) -> AsyncConfplane:
    """Return a client of a profile.

    Raises:
        ProfileError: The token or a TLS file is not available.
    """
    return AsyncConfplane(profile.url, token=token_of(profile), cluster=profile.cluster, verify=tls_of(profile))


def problem_text(error: ProblemError) -> str:
    """Return a problem in one paragraph: what is wrong, where, the Kafka error, and each individual error."""
    body = error.body
    detail = str(body.get("detail") or body.get("title") or f"HTTP {error.status}")
    name = error.kafka_error_name
    lines = [detail if name is None else f"{detail} ({name})"]
    lines += [f"  {each.get('pointer', '')}: {each.get('detail', '')}" for each in error.errors]
    if (step := _NEXT_BY_TYPE.get(error.problem_type or "") or _NEXT.get(error.status)) is not None:
        lines.append(step)
    if error.may_be_applied:
        shown = f"`confplane audit {body['changeId']}`" if "changeId" in body else "`confplane audit`"
        lines.append(f"The write may be done or not; {shown} shows its outcome once it is settled.")
    return "\n".join(lines)


def _no_answer(error: ConnectionFailedError) -> str:
    step = _CHECK_URL
    if error.may_be_applied:
        step = "The write may be done or not; `confplane audit --since 10m` shows it if it is."
    return f"The service did not answer: {error}\n{step}"


async def _run(profile: Profile, work: Callable[[AsyncConfplane], Awaitable[int]]) -> int:
    async with client_of(profile) as client:
        return await work(client)
