"""Runs a command over the API: its connection, its error messages, its exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from confplane.cli import termination
from confplane.cli.output import print_error
from confplane.cli.remote import profiles
from confplane.client import ClientError, ConnectionFailedError, ProblemError
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from confplane.cli.remote.profiles import Profile
    from confplane.client import AsyncConfplane

    Work = Callable[[AsyncConfplane], Awaitable[int | None]]

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
    401: "Check the token, from CONFPLANE_TOKEN_FILE, CONFPLANE_TOKEN or the profile (`confplane profiles list`);"
    " `confplane login` renews a login.",
    403: "`confplane whoami` shows your grants.",
    412: "Read the entity again: `confplane get ENTITY --json` has its ETags.",
}
"""The next step after a problem, by its HTTP status."""
_OPTIONS: Final = {
    **{name: f"--{name}" for name in ("after", "at", "entity", "facet", "from", "key", "outcome", "prefix")},
    **{name: f"--{name}" for name in ("principal", "reason", "since", "ticket", "to", "until", "user")},
    "changeId": "--change",
    "clientId": "--client-id",
    "configsEtag": "--configs-etag",
    "keys": "--key",
    "expiresIn": "--for",
    "quotasEtag": "--quotas-etag",
    "requestId": "--request-id",
}
"""The options of commands by the members and parameters of requests that they become."""
_ARGUMENTS: Final = {"changeId": "CHANGE", "requestId": "REQUEST"}
"""The arguments of commands by the parameters of paths; /changeId is a member, and so an option of `revert`."""
_UNNAMED: Final = {None, "UNKNOWN_SERVER_ERROR"}
"""Not shown: Kafka's name for errors that it does not have."""
_ETAGS: Final = {"configsEtag", "quotasEtag"}
"""Members of each item."""


def run(profile: str | None, cluster: str | None, work: Work) -> typer.Exit:
    """Run a command's work with a client of the chosen profile, and return the exit with its code; None means 0.

    Errors of the work are printed on standard error. The client retries requests without an answer.
    """
    return typer.Exit(code_of(lambda: run_with_client(profile, cluster, work)))


def run_with_client(profile: str | None, cluster: str | None, work: Work) -> int:
    """Do a command's work with a client of the chosen profile, and return its exit code. Errors are raised."""
    return termination.run(_run(profiles.choose_profile(profile, cluster), work))


def code_of(work: Callable[[], int], *, invalid: int = INVALID, unknown: int = UNKNOWN) -> int:
    """Do a piece of work and return its exit code; its error is printed on standard error.

    Args:
        work: The work.
        invalid: The exit code after invalid input or an unusable profile.
        unknown: The exit code of a write whose response was lost.
    """
    try:
        return work()
    except (InvalidRequestError, profiles.ProfileError) as error:
        return print_error(str(error), invalid)
    except ProblemError as error:
        return print_error(problem_text(error), unknown if error.may_be_applied else FAILED, problem=error.body)
    except ConnectionFailedError as error:
        return print_error(_no_answer(error), unknown if error.may_be_applied else FAILED)
    except ClientError as error:
        return print_error(str(error), unknown if error.may_be_applied else FAILED)
    except KeyboardInterrupt:
        return print_error("Interrupted", termination.EXIT_CODE if termination.is_requested() else INTERRUPTED)


def client_of(profile: Profile) -> AsyncConfplane:
    """Return a client of a profile.

    Raises:
        ProfileError: The token or a TLS file is not available.
    """
    from confplane.cli.remote.credentials import tls_of, tokens_of  # noqa: PLC0415 - help does without TLS
    from confplane.client import AsyncConfplane  # noqa: PLC0415 - help does without httpx

    return AsyncConfplane(profile.url, token=tokens_of(profile), cluster=profile.cluster, verify=tls_of(profile))


def problem_text(error: ProblemError) -> str:
    """Return a problem in one paragraph: what is wrong, the option or the place in the file, and what to do next."""
    body = error.body
    name = error.kafka_error_name
    findings = [(_place(str(each.get("pointer", ""))), str(each.get("detail", ""))) for each in error.errors]
    if len(findings) == 1:
        [(place, detail)] = findings
        lines = [f"{place}: {detail}" if place else detail]
    else:
        texts = [str(body.get(member) or "") for member in ("detail", "title")]
        if any(detail in texts[0] for _, detail in findings):  # each finding is shown once
            texts.reverse()
        lines = [texts[0] or texts[1] or f"HTTP {error.status}"]
    lines[0] = lines[0].replace("use force to", "use --force to")
    if name not in _UNNAMED:
        lines[0] += f" ({name})"
    if len(findings) > 1:
        lines += [f"  {place}: {detail}" if place else f"  {detail}" for place, detail in findings]
    if (step := _NEXT_BY_TYPE.get(error.problem_type or "") or _NEXT.get(error.status)) is not None:
        lines.append(step)
    if error.may_be_applied:
        shown = f"`confplane audit {body['changeId']}`" if "changeId" in body else "`confplane audit`"
        lines.append(f"The write may or may not be applied; {shown} shows its outcome once it is known.")
    return "\n".join(lines)


def refusal_texts(result: Mapping[str, Any]) -> list[str]:
    """Return the errors of one item's result, the first with Kafka's name for it if there is one."""
    details = [result["errorMessage"], *(part["detail"] for part in result.get("errors", ()))]
    first, *others = dict.fromkeys(each.replace("use force to", "use --force to") for each in details)
    name = result.get("errorName")
    return [first if name in _UNNAMED else f"{first} ({name})", *others]


def _place(pointer: str) -> str:
    """Return the option that a place in a request is from, or the number of an item; '' if the key says enough."""
    if pointer in _ARGUMENTS:
        return _ARGUMENTS[pointer]
    names = pointer.strip("/").split("/")
    if len(names) == 1 or names[-1] in _ETAGS:
        return _OPTIONS.get(names[-1], "")
    number = next((int(name) for name in names if name.isdecimal()), 0)
    return f"Item {number + 1}" if number else ""


def _no_answer(error: ConnectionFailedError) -> str:
    step = _CHECK_URL
    if error.may_be_applied:
        step = "The write may or may not be applied; `confplane audit --since 10m` shows it if it was."
    return f"The service did not answer: {error}\n{step}"


async def _run(profile: Profile, work: Work) -> int:
    async with client_of(profile) as client:
        return await work(client) or DONE
