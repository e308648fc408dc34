"""``confplane plan`` and ``confplane apply``: manifests in files, planned and applied over the API."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from confplane.cli.command_group import CommandGroup, PipelineCommand
from confplane.cli.output import confirmed, is_json, print_json, say
from confplane.cli.remote.changes import report_many
from confplane.cli.remote.manifests import ManifestFiles
from confplane.cli.remote.options import (
    ApplyAt,
    AsJson,
    BreakGlass,
    ClusterName,
    Draft,
    Duration,
    ExpiresAt,
    ProfileName,
    Propose,
    Reason,
    Ticket,
    WaitApplied,
    proposal_of,
    proposed,
    seconds_of,
)
from confplane.cli.remote.plan_runs import PLANNED, PlanRun, placed, planned, print_plan
from confplane.cli.remote.session import DONE, FAILED, code_of, run_with_client
from confplane.client import ProblemError
from confplane.domain.errors import InvalidRequestError
from confplane.domain.manifests import forced_key
from confplane.files import open_output

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from confplane.client import AsyncConfplane

_CHANGES: Final = 2


commands = CommandGroup()
ManifestPath = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="A manifest, or a directory with manifests (*.yaml, *.yml, *.json), which are one manifest together; - is"
        " standard input.",
    ),
]
Scope = Annotated[
    str | None,
    typer.Option(
        "--scope", metavar="TYPE:PREFIX", help="The entities that --prune may delete, for example topic:orders."
    ),
]
Prune = Annotated[
    bool,
    typer.Option(
        "--prune",
        help="Delete what the manifest does not name: the keys of its owner, or all keys in --scope without an owner.",
    ),
]
Force = Annotated[
    list[str] | None,
    typer.Option(
        "--force",
        metavar="ENTITY/KEY",
        help="Take this key over from another owner, for example topic=orders/retention.ms. May be repeated.",
    ),
]
MaxDeletes = Annotated[
    int | None,
    typer.Option(
        "--max-deletes",
        metavar="N",
        min=0,
        help="The most entities that --prune may delete configs of.",
        show_default="a fifth of the owner's entities, or of the scope, at least one; 0 without entities",
    ),
]
Atomic = Annotated[bool, typer.Option("--atomic", help="All entities in one transaction, or none.")]
EnvPrefix = Annotated[
    str | None,
    typer.Option(
        "--env-prefix",
        metavar="TEXT",
        help="Secrets in the manifest may come from environment variables that begin so (fromEnv).",
        show_default="no variable is read",
    ),
]


@commands.command(
    cls=PipelineCommand,
    epilog="Examples:\n\n"
    "    confplane plan manifests\n\n"
    "    confplane plan manifests --prune --scope topic:orders. --out plan.json\n\n"
    "Exit codes: 0 no changes; 2 changes; 1 an entity or the plan is refused, a file can't be read, or the service did"
    " not answer; 64 the arguments are not valid.",
)
def plan(
    path: ManifestPath,
    *,
    prune: Prune = False,
    scope: Scope = None,
    max_deletes: MaxDeletes = None,
    atomic: Atomic = False,
    force: Force = None,
    env_prefix: EnvPrefix = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", dir_okay=False, help="Write the plan to a file, for `confplane apply --plan`."
        ),
    ] = None,
    break_glass: BreakGlass = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Show what a manifest would create, change and delete in a cluster.

    Nothing is written. The token needs DESCRIBE_CONFIGS on the entities only, but ALTER_CONFIGS for passwords.
    """
    options = plan_options(atomic=atomic, prune=prune, scope=scope, max_deletes=max_deletes, force=force)
    files = ManifestFiles(path, env_prefix)
    run_manifest(profile, cluster, files, lambda client: show_plan(client, files, options, out, break_glass))


@commands.command(
    cls=PipelineCommand,
    epilog="Examples:\n\n"
    "    confplane apply manifests\n\n"
    "    confplane apply manifests --plan plan.json --reason 'CHG-1234'\n\n"
    "    confplane apply overrides.yaml --for 6h\n\n"
    "    confplane apply manifests --propose --reason 'keep a day'\n\n"
    "Exit codes: 0 applied, or there was nothing to apply; 1 refused, stale or not confirmed, a file can't be read, or"
    " the service did not answer; 64 the arguments are not valid.",
)
def apply(
    path: ManifestPath,
    *,
    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            dir_okay=False,
            help="Apply this plan, with its options, or nothing if it is out of date. Without it, a plan is made, shown"
            " and confirmed.",
        ),
    ] = None,
    prune: Prune = False,
    scope: Scope = None,
    max_deletes: MaxDeletes = None,
    atomic: Atomic = False,
    force: Force = None,
    env_prefix: EnvPrefix = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    propose: Propose = False,
    draft: Draft = False,
    apply_at: ApplyAt = None,
    expires_at: ExpiresAt = None,
    duration: Duration = None,
    break_glass: BreakGlass = None,
    reason: Reason = None,
    ticket: Ticket = None,
    wait_applied: WaitApplied = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Make a cluster what a manifest says, by its plan.

    The first refusal ends the run, and what was applied stays. The same command with the same plan continues. `revert
    --request-id` undoes a run by the id that it prints.
    """
    if plan_file is not None and (prune or scope is not None or max_deletes is not None or atomic or force):
        raise typer.BadParameter("The file has the options of its plan; give no others.", param_hint="--plan")
    options = plan_options(atomic=atomic, prune=prune, scope=scope, max_deletes=max_deletes, force=force)
    files = ManifestFiles(path, env_prefix)
    terms = {"reason": reason, "ticket": ticket, "expires_in": seconds_of(duration), "break_glass": break_glass}
    terms |= {"wait_applied_ms": wait_applied}
    if propose and (duration is not None or break_glass is not None):
        raise typer.BadParameter("--for and --break-glass are options of direct changes.", param_hint="--propose")
    proposal = proposal_of(apply_at, expires_at, propose=propose, draft=draft)
    run = _Apply(files, options, terms, yes=yes, propose=propose, proposal=proposal)
    run_manifest(profile, cluster, files, lambda client: run.run(client, plan_file))


def plan_options(
    *, atomic: bool, prune: bool, scope: str | None, max_deletes: int | None, force: Sequence[str] | None
) -> dict[str, Any]:
    """Return options of a plan as arguments of the client library.

    Raises:
        typer.BadParameter: The options contradict each other.
    """
    if scope is not None and not prune:
        raise typer.BadParameter("It is only for --prune.", param_hint="--scope")
    if max_deletes is not None and not prune:
        raise typer.BadParameter("It is only for --prune.", param_hint="--max-deletes")
    return {
        "atomic": atomic,
        "prune": prune,
        "scope": scope,
        "max_deletes": max_deletes,
        "force": [_forced(each) for each in force or ()],
    }


def _forced(text: str) -> tuple[str, str]:
    """Return the entity and the key of a forced key.

    Raises:
        typer.BadParameter: The text is not an entity and a key.
    """
    try:
        return forced_key(text)
    except InvalidRequestError as error:
        raise typer.BadParameter(error.detail, param_hint="--force") from None


def run_manifest(
    profile: str | None, cluster: str | None, files: ManifestFiles, work: Callable[[AsyncConfplane], Awaitable[int]]
) -> NoReturn:
    """Read the manifest, do the work in its cluster, and exit."""

    def done() -> int:
        files.read()
        if cluster is not None and files.cluster not in {None, cluster}:
            raise InvalidRequestError(f"{files.place('/cluster')}: the manifest is not of the cluster {cluster}")
        return run_with_client(profile, cluster or files.cluster, work)

    code = code_of(done, invalid=FAILED, unknown=FAILED)
    raise typer.Exit(_CHANGES if code == PLANNED else code)


async def show_plan(
    client: AsyncConfplane,
    files: ManifestFiles,
    options: dict[str, Any],
    out: Path | None = None,
    break_glass: str | None = None,
    *,
    as_diff: bool = False,
) -> int:
    """Print the plan of a manifest, write it to a file on request, and return the result of the command."""
    found = await planned(client, files, options, break_glass=break_glass)
    if out is not None:
        names = ("planId", "revision", "summary", "affectedClients", "refusal", "changes")
        _write(out, {"options": options, **{name: found[name] for name in names if name in found}})
    if is_json():
        print_json(found)
    return print_plan(found, files, as_diff=as_diff, break_glass=break_glass)


def _write(out: Path, content: dict[str, Any]) -> None:
    """Write a plan to a file.

    Raises:
        InvalidRequestError: The file can't be written.
    """
    try:
        with open_output(out) as stream:
            stream.write(f"{json.dumps(content, ensure_ascii=False, indent=2)}\n")
    except OSError as error:
        raise InvalidRequestError(f"{out} can't be written: {error.strerror}") from None


@dataclass(slots=True)
class _Apply:
    """The apply of a manifest."""

    files: ManifestFiles
    options: dict[str, Any]
    terms: dict[str, Any]
    yes: bool
    propose: bool
    proposal: Mapping[str, Any]

    async def run(self, client: AsyncConfplane, plan_file: Path | None) -> int:
        """Apply the plan of a file, or a new one, and return the exit code."""
        if plan_file is not None:
            plan_id, revision = self._read(plan_file)
        else:
            found = await planned(client, self.files, self.options, break_glass=self.terms["break_glass"])
            result = print_plan(found, self.files)
            if result != PLANNED:
                return result
            if not (self.yes or confirmed(f"{'Propose' if self.propose else 'Apply'} this plan?")):
                return FAILED
            plan_id, revision = found["planId"], int(found["revision"])
        if self.propose:
            return await self._propose(client, plan_id)
        return await self._apply(client, plan_id, revision)

    async def _propose(self, client: AsyncConfplane, plan_id: str) -> int:
        """Propose the plan as a change request."""
        given = self.options
        manifest = {
            **self.files.document,
            "planId": plan_id,
            "atomic": given["atomic"],
            "prune": given.get("prune", False) or given["scope"] is not None,
            "scope": given["scope"],
            "maxDeletes": given["max_deletes"],
            "force": [{"id": entity_id, "key": key} for entity_id, key in given.get("force", ())],
        }
        terms: Any = {name: self.terms[name] for name in ("reason", "ticket")} | {**self.proposal}
        made: Any = (await client.change_requests.propose(manifest=manifest, **terms)).body
        if is_json():
            print_json(made)
        say(proposed(made, "the plan"), err=True)
        return DONE

    def _read(self, plan_file: Path) -> tuple[str, int]:
        """Return the id and the revision of a plan, and take its options over.

        Raises:
            InvalidRequestError: The file is not a plan.
        """
        try:
            found = json.loads(plan_file.read_text("utf-8"))
            options = found["options"]
            self.options = {name: options[name] for name in ("atomic", "scope", "max_deletes")}
            # Plans of an earlier release have none of these.
            self.options |= {name: options[name] for name in ("prune", "force") if name in options}
            return str(found["planId"]), int(found["revision"])
        except OSError as error:
            raise InvalidRequestError(f"{plan_file} can't be read: {error.strerror}") from None
        except (ValueError, LookupError, TypeError):
            raise InvalidRequestError(f"{plan_file} is not a plan that `confplane plan --out` wrote") from None

    async def _apply(self, client: AsyncConfplane, plan_id: str, revision: int) -> int:
        """Send the plan, and return the exit code."""
        run = PlanRun(self.files, self.options, self.terms)
        try:
            code = await run.send(client, plan_id, revision)
        except ProblemError as error:
            raise self._refusal(error) from None
        if code == DONE and run.changed and self.terms["expires_in"] is not None:
            say("Their ends are listed by `confplane schedules list`", err=True)
        return code or report_many(run.waited)

    def _refusal(self, error: ProblemError) -> Exception:
        """Show the current plan after one that can't be applied, and return the error."""
        if error.problem_type != "stale-plan":
            return placed(error, self.files)
        body = error.body
        for each in body.get("changedSince", ()):
            say(f"Changed after the plan was made: {each['id']}, revision {each['revision']}", err=True)
        say("The plan now:", err=True)
        print_plan(body, self.files)
        return error
