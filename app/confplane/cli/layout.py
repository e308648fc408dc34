"""``confplane layout move``: move of a cluster's client configs to the other layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from confplane.cli import callers
from confplane.cli.progress import bar
from confplane.domain.facets import FacetName
from confplane.services.upkeep.layout import LayoutService
from confplane.wiring import open_cluster

if TYPE_CHECKING:
    from confplane.domain.facets import Tree
    from confplane.services.changes.callers import Caller
    from confplane.services.upkeep.layout import LayoutSurvey, MoveResult
    from confplane.settings import Settings


def move(settings: Settings, cluster: str, target: Tree, *, apply: bool, discard: bool) -> int:
    """Show the work of a move, move if ``apply``, and return the exit code.

    Args:
        settings: The settings, with the cluster.
        cluster: The cluster's name.
        target: The tree of the layout to move to.
        apply: Write.
        discard: Remove the client configs of the other tree, which are not in use.
    """
    return callers.run(
        _LayoutMoveCommand(settings, cluster, target, apply=apply, discard=discard).run(), "Not moved", resumable=True
    )


class _LayoutMoveCommand:
    def __init__(self, settings: Settings, cluster: str, target: Tree, *, apply: bool, discard: bool) -> None:
        self._settings = settings
        self._cluster = cluster
        self._target = target
        self._apply = apply
        self._discard = discard
        self._done = 0
        self._failed = 0

    async def run(self) -> int:
        async with open_cluster(self._settings, self._cluster) as parts:
            cluster_facet = parts.clusters.get(self._cluster).facets[FacetName.CLIENT_CONFIGS]
            self._service = LayoutService(parts.runner, cluster_facet)
            survey = await self._survey()
            typer.echo(f"Client configs of {self._cluster} are stored in the layout {survey.current}")
            if self._discard:
                return await self._discard_unread(survey)
            self._service.check(survey)
            return await self._move(survey) if self._apply else self._show(survey)

    async def _survey(self) -> LayoutSurvey:
        return await self._service.survey(self._target, self._caller().deadline)

    def _caller(self) -> Caller:
        return callers.caller(f"confplane layout move --to {self._target.layout}")

    def _show(self, survey: LayoutSurvey) -> int:
        for entity_id in survey.entity_ids:
            typer.echo(f"{entity_id}: would be moved")
        self._report_unread(survey)
        if survey.done:
            typer.echo("Nothing to do")
        else:
            typer.echo(
                f"{_entities(len(survey.entity_ids))} would be moved. Nothing was written; --apply writes, one change"
                " each. Until the move ends client configs can be read and not written"
            )
        return callers.DONE

    async def _move(self, survey: LayoutSurvey) -> int:
        if survey.done:
            typer.echo("Nothing to do")
            self._report_unread(survey)
            return callers.DONE
        while survey.entity_ids:
            version = await self._service.begin(survey, self._caller())
            await self._all(survey, version, discard=False)
            survey = await self._survey()
            if self._failed:
                typer.echo(
                    f"{_entities(self._done)} moved, {self._failed} not. Client configs can't be written until all are"
                    " moved: mend the errors above, and run the command again",
                    err=True,
                )
                return callers.FAILED
        await self._service.end(survey, self._caller())
        typer.echo(f"{_entities(self._done)} moved. The layout is {self._target.layout} from now on, in all processes")
        return callers.DONE

    async def _discard_unread(self, survey: LayoutSurvey) -> int:
        if survey.current.source is not None or survey.current.tree is not self._target:
            typer.echo(f"--discard goes with the layout that counts: --to {survey.current.tree.layout}", err=True)
            return callers.INVALID
        if not survey.unread:
            typer.echo("Nothing to do")
            return callers.DONE
        if not self._apply:
            for entity_id in survey.unread:
                typer.echo(f"{entity_id}: would be discarded from {self._target.other.layout}")
            typer.echo(
                f"Client configs of {_entities(len(survey.unread))} would be discarded. Nothing was written; --apply"
                " writes"
            )
            return callers.DONE
        version = await self._service.end(survey, self._caller())
        await self._all(survey, version, discard=True)
        typer.echo(f"Client configs of {_entities(self._done)} discarded; the trail has their contents")
        return callers.FAILED if self._failed else callers.DONE

    async def _all(self, survey: LayoutSurvey, version: int, *, discard: bool) -> None:
        with bar("Entities", len(survey.unread if discard else survey.entity_ids)) as advance:
            async for result in self._service.move(survey, version, self._caller(), discard=discard):
                self._done += result.change_id is not None
                self._failed += result.error is not None
                typer.echo(_line(result), err=result.error is not None)
                advance()

    def _report_unread(self, survey: LayoutSurvey) -> None:
        if survey.unread:
            typer.echo(
                f"The layout {survey.current.tree.other.layout} has client configs of {_entities(len(survey.unread))}"
                f" that nobody reads, {survey.unread[0]} among them;"
                f" --to {survey.current.tree.layout} --discard removes them",
                err=True,
            )


def _line(result: MoveResult) -> str:
    if result.error is not None:
        return f"{result.entity_id}: {result.error}"
    if result.change_id is None:
        return f"{result.entity_id}: was done already"
    return f"{result.entity_id}: {', '.join(result.keys)} (change {result.change_id})"


def _entities(number: int) -> str:
    return callers.pluralize(number, "entity", "entities")
