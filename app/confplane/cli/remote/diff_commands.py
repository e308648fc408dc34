"""``confplane diff``: an entity at two moments, or a cluster and a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from confplane.cli.command_group import CommandGroup, PipelineCommand
from confplane.cli.output import echo, is_json, note_inexact, print_changes, print_json
from confplane.cli.remote import completion
from confplane.cli.remote.entities import entity_of, facets_of, gather
from confplane.cli.remote.manifest_commands import (
    Atomic,
    EnvPrefix,
    Force,
    MaxDeletes,
    Prune,
    Scope,
    plan_options,
    run_manifest,
    show_plan,
)
from confplane.cli.remote.manifests import ManifestFiles
from confplane.cli.remote.options import AsJson, ClusterName, ProfileName
from confplane.cli.remote.session import DONE, run
from confplane.cli.times import moment_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.client import AsyncConfplane
    from confplane.client.types import PastDiff
    from confplane.domain.entities import Entity
    from confplane.domain.facets import FacetName

commands = CommandGroup()


@commands.command(
    cls=PipelineCommand,
    epilog="Examples:\n\n"
    "    confplane diff user=alice --from 2h\n\n"
    "    confplane diff topic=orders --from 8589934635 --to 2026-01-31T12:00:00Z\n\n"
    "    confplane diff manifests\n\n"
    "Exit codes of an entity: 0 shown; 1 the service refused or did not answer; 2 the entity, a moment or the profile"
    " is not valid. Of a manifest: 0 no changes; 2 changes; 1 an entity or the plan is refused, a file can't be read,"
    " or the service did not answer. Of both: 64 the arguments are not valid.",
)
def diff(
    target: Annotated[
        str,
        typer.Argument(
            metavar="ENTITY|PATH",
            help="With --from an entity, such as user=alice. Otherwise a manifest, a directory with manifests, or - for"
            " standard input.",
            autocompletion=completion.entity_ids,
        ),
    ],
    *,
    before: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="MOMENT",
            help="The first moment: a revision, 2026-01-31T12:00:00Z, or a time ago such as 30m.",
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option("--to", metavar="MOMENT", help="The second moment; as --from.", show_default="now"),
    ] = None,
    prune: Prune = False,
    scope: Scope = None,
    max_deletes: MaxDeletes = None,
    atomic: Atomic = False,
    force: Force = None,
    env_prefix: EnvPrefix = None,
    as_json: AsJson = False,
    cluster: ClusterName = None,
    profile: ProfileName = None,
) -> None:
    """Show the keys that differ: of an entity between two moments, or of a cluster and a manifest.

    The diff of a manifest is its plan (`confplane plan`), in the form of a unified diff. Nothing is written.
    """
    options = plan_options(atomic=atomic, prune=prune, scope=scope, max_deletes=max_deletes, force=force)
    if before is not None:
        if prune or atomic or force or env_prefix is not None:
            raise typer.BadParameter("It is for an entity, the other options are for a manifest.", param_hint="--from")
        first = before
        raise run(profile, cluster, lambda client: _diff(client, target, before=first, after=after))
    if after is not None:
        raise typer.BadParameter("It needs --from.", param_hint="--to")
    path = Path(target)
    if target != "-" and not path.exists():
        raise typer.BadParameter(
            f"There is no file {target!r}. Give the path of a manifest, or an entity with --from.",
            param_hint="ENTITY|PATH",
        )
    files = ManifestFiles(path, env_prefix)
    run_manifest(profile, cluster, files, lambda client: show_plan(client, files, options, as_diff=True))


async def _diff(client: AsyncConfplane, name: str, *, before: str, after: str | None) -> int:
    """Print the keys that differ between two moments, and return the exit code."""
    entity = entity_of(name)
    facets = facets_of(entity)
    found = await _differences(
        client, entity, facets, moment_of(before, "--from"), None if after is None else moment_of(after, "--to")
    )
    note_inexact(moment for each in found for moment in (each["before"], each["after"]))
    if is_json():
        print_json({"id": entity.id} | {facet.value: each for facet, each in zip(facets, found, strict=True)})
        return DONE
    changes = [change for each in found for change in each["changes"]]
    if not changes:
        echo(f"{entity.id} has no difference between {before} and {after or 'now'}", err=True)
        return DONE
    print_changes(changes)
    return DONE


async def _differences(
    client: AsyncConfplane, entity: Entity, facets: Sequence[FacetName], before: str, after: str | None
) -> list[PastDiff]:
    answers = await gather(client.resources(facet).diff(entity, before=before, after=after) for facet in facets)
    return [answer.body for answer in answers]
