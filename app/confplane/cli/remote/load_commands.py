"""``confplane load``: a file with configs, applied as a manifest that is merged."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.output import echo, is_json, print_error, print_json, say
from confplane.cli.remote.changes import report_many
from confplane.cli.remote.manifest_commands import EnvPrefix
from confplane.cli.remote.manifests import open_source, read_parts
from confplane.cli.remote.options import (
    AsLines,
    BreakGlass,
    ClusterName,
    ProfileName,
    Reason,
    Ticket,
    ValidateOnly,
    WaitApplied,
)
from confplane.cli.remote.plan_runs import PLANNED, STALE, PlanRun, planned, print_plan
from confplane.cli.remote.session import DONE, FAILED, code_of, run_with_client
from confplane.client import ClientError
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confplane.cli.remote.manifests import ManifestFiles
    from confplane.client import AsyncConfplane

commands = CommandGroup()
_OPTIONS: Final = {"merge": True}
_ATTEMPTS: Final = 5
"""Plans of a part: a plan is stale if one of its entities is changed before it is applied."""


@commands.command(
    epilog="Examples:\n\n"
    "    confplane load payments.yaml --validate-only\n\n"
    '    confplane load payments.yaml --cluster payments-copy --reason "CHG-1234"\n\n'
    "Exit codes: 0 loaded; 1 an entity was refused, or not applied in time, or the service did not answer; 2 the file,"
    " the arguments or the profile are not valid, and nothing was set; 3 the answer to a write was lost: load the file"
    " again."
)
def load(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file; - is standard input.")],
    *,
    validate_only: ValidateOnly = False,
    env_prefix: EnvPrefix = None,
    reason: Reason = None,
    ticket: Ticket = None,
    break_glass: BreakGlass = None,
    wait_applied: WaitApplied = None,
    as_json: AsLines = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Set the quotas and configs of an export or a manifest, and keep all other keys.

    Keys with null, which stands for a secret, are not changed either. The first refusal ends the load, but not a dry
    run. A file may be loaded again: equal values are not changed. It may have any number of entities, which are sent in
    parts of 10,000.
    """
    terms = {"reason": reason, "ticket": ticket, "break_glass": break_glass, "wait_applied_ms": wait_applied}

    def done() -> int:
        with open_source(file) as stream:
            # The whole file is read first, so that an error at its end leaves the cluster unchanged.
            named, secrets = None, 0
            for part in read_parts(stream, file, env_prefix):
                named, secrets = part.cluster, secrets + part.secrets
            if cluster is not None and named not in {None, cluster}:
                raise InvalidRequestError(f"{file}: the manifest is not of the cluster {cluster}")
            loader = _Loader(read_parts(stream, file, env_prefix), terms, secrets, validate_only=validate_only)
            return run_with_client(profile, cluster or named, loader.run)

    raise typer.Exit(code_of(done))


@dataclass(slots=True)
class _Loader:
    """Applies the parts of a file one after the other, or shows their plans.

    Args:
        parts: The parts.
        terms: The terms of the writes.
        secrets: The number of secrets that are left out.
        validate_only: Show the plans alone.
    """

    parts: Iterable[ManifestFiles]
    terms: Mapping[str, Any]
    secrets: int
    validate_only: bool
    _changed: int = 0
    _waited: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    async def run(self, client: AsyncConfplane) -> int:
        """Load the file, and return the exit code."""
        from asyncio import CancelledError

        code = DONE
        try:
            for part in self.parts:
                code = max(code, await self._load(client, part))
                if code != DONE and not self.validate_only:
                    say(f"Not all of the file was loaded. Changes applied: {self._changed}", err=True)
                    break
        except (ClientError, InvalidRequestError, CancelledError):
            if not self.validate_only:
                text = "Load the file again: equal values are not changed."
                echo(f"Not all of the file was loaded. Changes applied: {self._changed}. {text}", err=True)
            raise
        if self.secrets:
            echo(f"Secrets left out: {self.secrets}", err=is_json())
        return code or report_many(self._waited)

    async def _load(self, client: AsyncConfplane, part: ManifestFiles) -> int:
        """Apply a part or show its plan, and return the exit code."""
        for _ in range(_ATTEMPTS):
            plan = await planned(client, part, _OPTIONS, break_glass=self.terms["break_glass"])
            if self.validate_only and is_json():
                print_json(plan)
            glass = self.terms["break_glass"] if self.validate_only else None
            code = print_plan(plan, part, with_changes=self.validate_only, break_glass=glass)
            if code != PLANNED or self.validate_only:
                return DONE if code == PLANNED else code
            run = PlanRun(part, _OPTIONS, self.terms)
            try:
                code = await run.send(client, plan["planId"], int(plan["revision"]))
            finally:
                self._changed += run.changed
                self._waited += [(name, result) for name, result in run.waited if "applied" in result]
            if code != STALE:
                return code
        return print_error("Entities of the file are changed again and again while it is loaded", FAILED)
