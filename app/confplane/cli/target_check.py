"""``confplane target check``: which reads and writes a Kafka cluster allows to this service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import typer

from confplane.cli import callers
from confplane.cli.target_wiring import open_kafka
from confplane.services.ports.kafka import EntityTypePermission

if TYPE_CHECKING:
    from confplane.settings import Settings

_DEADLINE_S: Final = 120.0


def run(settings: Settings, cluster: str) -> int:
    """Try each describe and each alter, print the results, and return the exit code."""
    return callers.run(_check(settings, cluster), "Not checked")


async def _check(settings: Settings, cluster: str) -> int:
    async with open_kafka(settings, cluster) as found:
        deadline = time.monotonic() + _DEADLINE_S
        identity = await found.identity(deadline)
        permissions = await found.permissions(deadline, alters=True)
        unproven = await found.unproven(deadline)
        kafka_settings = settings.clusters[cluster].kafka
        logged = kafka_settings is not None and bool(kafka_settings.controllers)
        unfollowed = await found.unfollowed(deadline) if logged else None
    brokers = ", ".join(map(str, identity.brokers))
    typer.echo(
        f"Kafka cluster {identity.cluster_id}, release {identity.release} (metadata.version"
        f" {identity.metadata_version}), brokers {brokers}"
    )
    for entity_type, (permission, reason) in permissions.items():
        typer.echo(f"  {entity_type:<16}{permission.value.replace('-', ' ')}{f': {reason}' if reason else ''}")
    if unproven is None:
        typer.echo("  barrier         yes: a read with consistency=strong is behind every acknowledged change")
    else:
        typer.echo(
            f"  barrier         no: {unproven}; needed: DESCRIBE on CLUSTER. Without it a strong read waits a second,"
            " until the broker has heard of changes twice"
        )
    if logged:
        typer.echo(
            "  metadata log    "
            + ("yes: every write is in the trail" if unfollowed is None else f"no: {unfollowed}. Looks do without it")
        )
    unaltered = [
        entity_type
        for entity_type, (permission, _) in permissions.items()
        if permission is not EntityTypePermission.FULL
    ]
    if unaltered:
        typer.echo(f"In the modes adopt and enforce callers' changes would wait: {', '.join(unaltered)}")
    missing = [
        entity_type for entity_type, (permission, _) in permissions.items() if permission is EntityTypePermission.NONE
    ]
    if not missing:
        typer.echo("Everything can be followed. Nothing was written")
        return callers.DONE
    typer.echo(f"Can't be followed: {', '.join(missing)}. Everything else can. Nothing was written", err=True)
    return callers.FAILED
