"""Options and arguments that commands over the API share."""

from __future__ import annotations

from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from confplane.cli.remote import completion, session
from confplane.cli.times import duration_of, later_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

READ_CODES: Final = (
    "Exit codes: 0 shown; 1 the service refused or did not answer; 2 the arguments or the profile are not valid."
)
"""The exit codes of commands that read, for their help."""
WRITE_CODES: Final = (
    "Exit codes: 0 done; 1 refused, or the service did not answer; 2 the arguments or the profile are not valid; 3 the"
    " answer to a write was lost, and it may be done or not."
)
"""The exit codes of commands that write, for their help."""
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="The profile of the service.",
        show_default="the current profile",
        autocompletion=completion.profile_names,
    ),
]
ClusterName = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="The cluster.",
        show_default="the cluster of the profile",
        autocompletion=completion.cluster_names,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the API has it.")]
NoPager = Annotated[
    bool, typer.Option("--no-pager", help="Print a list that is longer than the terminal without a pager.")
]
AsLines = Annotated[bool, typer.Option("--json", help="Print JSON, as the API has it: a line for each item.")]
_ENTITY: Final = (
    "The entity: user=alice, user=alice,client-id=billing, ip=10.0.0.1, topic=orders, broker=0; a type alone is the"
    " default entity."
)
EntityName = Annotated[str, typer.Argument(metavar="ENTITY", help=_ENTITY, autocompletion=completion.entity_ids)]
OptionalEntity = Annotated[
    str | None,
    typer.Argument(metavar="ENTITY", help=_ENTITY, show_default="a list", autocompletion=completion.entity_ids),
]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Show only this key.")]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="The reason, which is stored in the trail.")
]
Propose = Annotated[
    bool,
    typer.Option("--propose", help="Propose the change for another person to approve (`confplane requests`)."),
]
Draft = Annotated[
    bool,
    typer.Option(
        "--draft", help="Make a draft, which nobody is asked to approve until `confplane requests revise` proposes it."
    ),
]
_TIME_FORMS: Final = "2026-01-31T12:00:00Z, or a time from now such as 2h."
ApplyAt = Annotated[
    str | None,
    typer.Option(
        "--apply-at",
        metavar="TIME",
        help=f"The time from which the request is applied by itself once it is approved: {_TIME_FORMS}",
        show_default="when somebody applies it",
    ),
]
ExpiresAt = Annotated[
    str | None,
    typer.Option(
        "--expires-at", metavar="TIME", help=f"The time at which the request expires: {_TIME_FORMS}", show_default="7d"
    ),
]
BreakGlass = Annotated[
    str | None,
    typer.Option(
        "--break-glass",
        metavar="REASON",
        help="In an emergency, write past the rules of the policies. Another person has to acknowledge it.",
    ),
]
Ticket = Annotated[
    str | None, typer.Option("--ticket", metavar="ID", help="The id of a ticket, which is stored in the trail.")
]
ValidateOnly = Annotated[
    bool, typer.Option("--validate-only", help="Check everything and show the differences without writing.")
]
WaitApplied = Annotated[
    int | None,
    typer.Option(
        "--wait-applied",
        metavar="MS",
        min=0,
        max=60_000,
        help="Wait at most this many milliseconds until the Kafka 4 cluster has applied the change. The exit code is"
        " 1 if it has not by then, or refuses the change, which stays committed.",
    ),
]
Duration = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="TIME",
        help="Change the keys for this time only, such as 6h; then they get their earlier values again.",
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="MOMENT",
        help="A time in the past: a revision, 2026-01-31T12:00:00Z, or a time ago such as 30m.",
        show_default="now",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Changes from this time on: 2026-01-31T12:00:00Z, or a time ago such as 30m."
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Changes before this time, in the form of --since.")
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of changes.")]


def served(
    *, as_lines: bool = False, in_cluster: bool = True
) -> Callable[[Callable[..., Awaitable[int | None]]], Callable[..., None]]:
    """Return a decorator that makes a command of a coroutine function, whose first argument is a client of the service.

    The command has ``--json``, ``--cluster`` and ``--profile`` after the options of the function.

    Args:
        as_lines: ``--json`` prints a line for each item.
        in_cluster: The command has ``--cluster``.
    """
    shared: dict[str, tuple[Any, Any]] = {"as_json": (AsLines if as_lines else AsJson, False)}
    shared |= {"cluster": (ClusterName, None)} if in_cluster else {}
    shared["profile"] = ProfileName, None

    def decorated(function: Callable[..., Awaitable[int | None]]) -> Callable[..., None]:
        @wraps(function)
        def command(*, as_json: bool, profile: str | None, **given: Any) -> None:
            del as_json  # the class of the command knows it
            cluster = given.pop("cluster") if in_cluster else None
            raise session.run(profile, cluster, lambda client: function(client, **given))

        del function.__annotations__["client"]  # only type checkers import it
        _, *own = signature(function, eval_str=True).parameters.values()
        options = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in shared.items()
        ]
        command.__annotations__ = {}
        command.__signature__ = Signature([*own, *options])  # type: ignore[attr-defined]  # what inspect looks for
        return command

    return decorated


def terms(reason: str | None, ticket: str | None) -> Any:
    """Return a reason and a ticket as arguments of a call of the client library."""
    return {"reason": reason, "ticket": ticket}


def times_of(apply_at: str | None, expires_at: str | None) -> dict[str, str]:
    """Return the times of a change request as arguments of the client library.

    Raises:
        typer.BadParameter: A text is not a time.
    """
    given = {"apply_at": (apply_at, "--apply-at"), "expires_at": (expires_at, "--expires-at")}
    return {name: later_of(text, option) for name, (text, option) in given.items() if text is not None}


def proposal_of(apply_at: str | None, expires_at: str | None, *, propose: bool, draft: bool) -> dict[str, Any]:
    """Return what `--propose` makes a change request with, besides its content, as arguments of the client library.

    Raises:
        typer.BadParameter: A text is not a time, or something is given for a change that is not proposed.
    """
    found = times_of(apply_at, expires_at) | ({"draft": True} if draft else {})
    if found and not propose:
        raise typer.BadParameter("It is an option of --propose.", param_hint=f"--{min(found).replace('_', '-')}")
    return found


def proposed(request: dict[str, Any], what: str) -> str:
    """Return the result of `--propose` as a sentence."""
    if request["state"] == "draft":
        return f"Made a draft of {what}: propose it with `confplane requests revise {request['id']}`"
    return f"Proposed {what}: request {request['id']}, see `confplane requests show {request['id']}`"


def seconds_of(duration: str | None) -> int | None:
    """Return the seconds of a :data:`Duration`.

    Raises:
        typer.BadParameter: The text is not a duration.
    """
    return None if duration is None else duration_of(duration, "--for")
