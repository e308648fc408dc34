"""The work of ``confplane layout move`` and ``confplane secrets rotate``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from confplane.cli import callers, termination
from confplane.cli.callers import DONE, FAILED, INVALID, caller, counted
from confplane.cli.output import bar, emit, print_error, say
from confplane.domain.errors import (
    BodyTooLargeError,
    ConcurrentChangeError,
    ConfplaneError,
    CorruptZnodeError,
    EncoderSecretMissingError,
    InvalidRequestError,
    NotFoundError,
    OutcomeUnknownError,
)
from confplane.domain.facets import FacetName
from confplane.domain.texts import clipped, shown
from confplane.services.upkeep.layout import LayoutService
from confplane.wiring import open_cluster, rotation

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from confplane.domain.facets import Tree
    from confplane.services.changes.callers import Caller
    from confplane.services.upkeep.layout import LayoutSurvey, MoveResult
    from confplane.services.upkeep.rotate import RotatedBroker
    from confplane.settings import Settings


def move_layout(settings: Settings, cluster: str, target: Tree, *, apply: bool, discard: bool) -> int:
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
            say(f"Client configs of {self._cluster} are stored in the layout {survey.current}")
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
            emit(id=entity_id, changeId=None)
            say(f"{entity_id}: would be moved")
        self._report_unread(survey)
        if survey.done:
            say("Nothing to do")
        else:
            say(
                f"{counted(len(survey.entity_ids))} would be moved. Nothing was written; --apply writes, one change"
                " each. Until the move ends client configs can be read and not written"
            )
        return callers.DONE

    async def _move(self, survey: LayoutSurvey) -> int:
        if survey.done:
            say("Nothing to do")
            self._report_unread(survey)
            return callers.DONE
        while survey.entity_ids:
            version = await self._service.begin(survey, self._caller())
            await self._all(survey, version, discard=False)
            survey = await self._survey()
            if self._failed:
                say(
                    f"{counted(self._done)} moved, {self._failed} not. Client configs can't be written until all are"
                    " moved: fix the errors above, and run the command again",
                    err=True,
                )
                return callers.FAILED
        await self._service.end(survey, self._caller())
        say(f"{counted(self._done)} moved. The layout is {self._target.layout} from now on, in all processes")
        return callers.DONE

    async def _discard_unread(self, survey: LayoutSurvey) -> int:
        if survey.current.source is not None or survey.current.tree is not self._target:
            raise InvalidRequestError(
                f"--discard removes client configs from the layout that is not in use: give --to"
                f" {survey.current.tree.layout}."
            )
        if not survey.unread:
            say("Nothing to do")
            return callers.DONE
        if not self._apply:
            for entity_id in survey.unread:
                emit(id=entity_id, changeId=None)
                say(f"{entity_id}: would be discarded from {self._target.other.layout}")
            say(
                f"Client configs of {counted(len(survey.unread))} would be discarded. Nothing was written; --apply"
                " writes"
            )
            return callers.DONE
        version = await self._service.end(survey, self._caller())
        await self._all(survey, version, discard=True)
        say(f"Client configs of {counted(self._done)} discarded; the trail has their contents")
        return callers.FAILED if self._failed else callers.DONE

    async def _all(self, survey: LayoutSurvey, version: int, *, discard: bool) -> None:
        with bar("Entities", len(survey.unread if discard else survey.entity_ids)) as advance:
            async for result in self._service.move(survey, version, self._caller(), discard=discard):
                self._done += result.change_id is not None
                self._failed += result.error is not None
                error = None if result.error is None else str(result.error)
                emit(id=result.entity_id, keys=list(result.keys), changeId=result.change_id, error=error)
                say(_move_line(result), err=result.error is not None)
                advance()

    def _report_unread(self, survey: LayoutSurvey) -> None:
        if survey.unread:
            say(
                f"The layout {survey.current.tree.other.layout} has client configs of {counted(len(survey.unread))}"
                f" that are not in use, for example {survey.unread[0]};"
                f" --to {survey.current.tree.layout} --discard removes them",
                err=True,
            )


def _move_line(result: MoveResult) -> str:
    if result.error is not None:
        return f"{result.entity_id}: {result.error}"
    if result.change_id is None:
        return f"{result.entity_id}: already done"
    return f"{result.entity_id}: {', '.join(result.keys)} (change {result.change_id})"


_INTERRUPTED = 130
_OF_ONE_BROKER: Final = (BodyTooLargeError, ConcurrentChangeError, CorruptZnodeError, EncoderSecretMissingError)
"""Errors that concern only one broker."""


def rotate_secrets(settings: Settings, cluster: str, broker_id: int | None, old_secret_file: Path | None) -> int:
    """Rotate one broker, or all brokers for None, print the results, and return the exit code.

    Args:
        settings: The service's settings.
        cluster: The name of a cluster in the settings.
        broker_id: The broker whose passwords are encoded again.
        old_secret_file: A file with the old secret, instead of the file that the settings name.
    """
    report = _Report()
    try:
        termination.run(_rotate(_with_old_secret(settings, cluster, old_secret_file), cluster, broker_id, report))
    except ConfplaneError as error:
        return print_error(f"Not rotated: {error}", INVALID if isinstance(error, NotFoundError) else FAILED)
    except KeyboardInterrupt:
        report.stopped = "you stopped it"
        report.print()
        return _INTERRUPTED
    report.print()
    return report.exit_code


async def _rotate(settings: Settings, cluster: str, broker_id: int | None, report: _Report) -> None:
    async with open_cluster(settings, cluster) as parts:
        service = rotation(settings, cluster, parts)
        brokers = service.brokers()
        if broker_id is not None:
            if broker_id not in brokers:
                say(f"Broker {broker_id} has no configs of its own in ZooKeeper")
            brokers = [broker_id]
        # On a terminal the bar stands for the brokers without problems.
        is_terminal = sys.stdout.isatty()
        with bar("Brokers", len(brokers)) as advance:
            for each in brokers:
                result = await service.rotate(each, caller("confplane secrets rotate"))
                report.add(result)
                emit(
                    brokerId=each,
                    reencoded=list(result.reencoded),
                    current=list(result.current),
                    undecodable=list(result.undecodable),
                    changeId=result.change_id,
                    error=None if result.error is None else str(result.error),
                )
                if result.error is not None or result.undecodable or not is_terminal:
                    say(_rotation_line(result))
                advance()
                if result.error is not None and not isinstance(result.error, _OF_ONE_BROKER):
                    report.stopped = f"broker {each} could not be written"
                    return


def _with_old_secret(settings: Settings, cluster: str, path: Path | None) -> Settings:
    """Return the settings with another old secret for all brokers of a cluster."""
    found = settings.clusters.get(cluster)
    if path is None or found is None or found.password_encoder is None:
        return settings
    changed = {"old_secret_file": path}
    encoder = found.password_encoder
    brokers = {number: own.model_copy(update=changed) for number, own in encoder.brokers.items()}
    encoder = encoder.model_copy(update={**changed, "brokers": brokers})
    clusters = {**settings.clusters, cluster: found.model_copy(update={"password_encoder": encoder})}
    return settings.model_copy(update={"clusters": clusters})


def _rotation_line(result: RotatedBroker) -> str:
    if result.error is not None:
        unknown = "it is not known whether it was done" if isinstance(result.error, OutcomeUnknownError) else "not done"
        return f"broker {result.broker_id}: {unknown}. {result.error}"
    said = []
    if result.reencoded:
        said.append(f"{_keys(len(result.reencoded))} encoded again (change {result.change_id})")
    if result.undecodable:
        said.append(f"{_keys(len(result.undecodable))} undecodable: {_names(result.undecodable)}")
    return f"broker {result.broker_id}: {', '.join(said) or 'nothing to do'}"


def _keys(number: int) -> str:
    return callers.pluralize(number, "key", "keys")


def _names(keys: Iterable[str]) -> str:
    """Return keys in a printable form, because text from ZooKeeper must not control a terminal."""
    return ", ".join(clipped(key) if key.isprintable() else shown(key) for key in keys)


@dataclass(slots=True)
class _Report:
    """The results of the brokers so far."""

    results: list[RotatedBroker] = field(default_factory=list)
    stopped: str | None = None
    """The reason why not all brokers were processed."""

    def add(self, result: RotatedBroker) -> None:
        self.results.append(result)

    @property
    def exit_code(self) -> int:
        failed = any(result.error is not None or result.undecodable for result in self.results)
        return FAILED if failed or self.stopped else DONE

    def print(self) -> None:
        done = [result for result in self.results if result.error is None]
        reencoded = sum(len(result.reencoded) for result in done)
        current = sum(len(result.current) for result in done)
        undecodable = sum(len(result.undecodable) for result in done)
        brokers = callers.pluralize(len(done), "broker", "brokers")
        say(
            f"Done: {brokers}, {_keys(reencoded)} encoded again, {current} already encoded with the current secret, "
            f"{undecodable} undecodable"
        )
        left = [result for result in done if result.undecodable]
        if left:
            say("No secret decodes these values, so brokers ignore them. Set them again:", err=True)
        for result in left:
            say(f"  broker {result.broker_id}: {_names(result.undecodable)}", err=True)
        without = [str(result.broker_id) for result in left if not result.old_known]
        if without:
            say(
                f"No old secret is known for {', '.join(without)}: name its file in password_encoder.old_secret_file "
                "or --old-secret-file, if they are under that",
                err=True,
            )
        failed = [str(result.broker_id) for result in self.results if result.error is not None]
        if failed:
            say(f"Not done: {', '.join(failed)}", err=True)
        if self.stopped is not None:
            say(f"Stopped, because {self.stopped}. Run the command again for the remaining brokers", err=True)
