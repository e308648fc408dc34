"""``confplane secrets rotate``: encodes brokers' stored passwords again, under their new encoder secret."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from confplane.cli import termination
from confplane.cli.callers import DONE, FAILED, INVALID, caller
from confplane.domain.errors import (
    BodyTooLargeError,
    ConcurrentChangeError,
    ConfplaneError,
    CorruptZnodeError,
    EncoderSecretMissingError,
    NotFoundError,
    OutcomeUnknownError,
)
from confplane.domain.texts import clipped, shown
from confplane.wiring import open_cluster, rotation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from confplane.services.upkeep.rotate import RotatedBroker
    from confplane.settings import Settings

_INTERRUPTED = 130
_OF_ONE_BROKER: Final = (BodyTooLargeError, ConcurrentChangeError, CorruptZnodeError, EncoderSecretMissingError)
"""Errors that concern only one broker."""


def rotate(settings: Settings, cluster: str, broker_id: int | None, old_secret_file: Path | None) -> int:
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
        typer.echo(f"Not rotated: {error}", err=True)
        return INVALID if isinstance(error, NotFoundError) else FAILED
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
                typer.echo(f"Broker {broker_id} has no configs of its own in ZooKeeper")
            brokers = [broker_id]
        with _shown(len(brokers)) as show:
            for each in brokers:
                result = await service.rotate(each, caller("confplane secrets rotate"))
                report.add(result)
                show(result)
                if result.error is not None and not isinstance(result.error, _OF_ONE_BROKER):
                    report.stopped = f"broker {each} was not to be written"
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


@contextmanager
def _shown(total: int) -> Iterator[Callable[[RotatedBroker], None]]:
    """Print brokers when processed: on a terminal a bar and lines only for problems, otherwise a line per broker."""
    console = Console()
    if not console.is_terminal:
        yield lambda result: typer.echo(_line(result))
        return
    columns = (TextColumn("Brokers"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=total)

        def show(result: RotatedBroker) -> None:
            if result.error is not None or result.undecodable:
                console.print(_line(result), markup=False, highlight=False, soft_wrap=True)
            progress.advance(task)

        yield show


def _line(result: RotatedBroker) -> str:
    if result.error is not None:
        unknown = "it is not known whether it was done" if isinstance(result.error, OutcomeUnknownError) else "not done"
        return f"broker {result.broker_id}: {unknown}. {result.error}"
    said = []
    if result.reencoded:
        said.append(f"{_keys(len(result.reencoded))} encoded anew (change {result.change_id})")
    if result.undecodable:
        said.append(f"{_keys(len(result.undecodable))} undecodable: {_names(result.undecodable)}")
    return f"broker {result.broker_id}: {', '.join(said) or 'nothing to do'}"


def _keys(number: int) -> str:
    return "1 key" if number == 1 else f"{number} keys"


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
        brokers = "1 broker" if len(done) == 1 else f"{len(done)} brokers"
        typer.echo(
            f"Done: {brokers}, {_keys(reencoded)} encoded anew, {current} under the current secret already, "
            f"{undecodable} undecodable"
        )
        left = [result for result in done if result.undecodable]
        if left:
            typer.echo("No secret opens these, so brokers leave them out; set them anew:", err=True)
        for result in left:
            typer.echo(f"  broker {result.broker_id}: {_names(result.undecodable)}", err=True)
        without = [str(result.broker_id) for result in left if not result.old_known]
        if without:
            typer.echo(
                f"No old secret is known for {', '.join(without)}: name its file in password_encoder.old_secret_file "
                "or --old-secret-file, if they are under that",
                err=True,
            )
        failed = [str(result.broker_id) for result in self.results if result.error is not None]
        if failed:
            typer.echo(f"Not done: {', '.join(failed)}", err=True)
        if self.stopped is not None:
            typer.echo(f"Stopped, because {self.stopped}. Run the command again for the remaining brokers", err=True)
