"""Backups: the greatest memory and the time of ``backup``, ``verify`` and ``restore``, beside those of a small cluster.

Each entity is a znode, and has three rows in Postgres: its state, and two registrations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psycopg

from tests.bench.commands import used_by
from tests.bench.rounds import Figure, progress
from tests.support.commands import Commands
from tests.support.servers import make_chroot, make_migrated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.bench.world import World

_SMALL: Final = 10_000
_RECORDED_S: Final = 3_600.0
_ROWS: Final = """
INSERT INTO registrations
  (event, cluster, entity_id, software_name, software_version, supported_configs, seen_at, seen_on)
SELECT 'seen', 'default', 'user=' || n, 'lib', '1', ARRAY['acks'], now(), current_date FROM generate_series(1, %s) AS n
"""


def measure(world: World, *, entities: int) -> Iterator[Figure]:
    """Yield the figures."""
    small, large = _measured(world, _SMALL), _measured(world, entities)
    reference = f"with {_SMALL:,}"
    for command, (seconds, megabytes) in large.items():
        name = f"`confplane {command}`, {entities:,} entities"
        yield Figure(
            f"Greatest memory of {name}", "MB", [megabytes], reference, [small[command][1]], less_is_better=True
        )
        yield Figure(f"Time of {name}", "s", [seconds], reference, [small[command][0]], less_is_better=True)


def _measured(world: World, entities: int) -> dict[str, tuple[float, float]]:
    """Return the seconds and the greatest memory in MB of each command."""
    source, target = make_migrated(world.postgres), make_migrated(world.postgres)
    with psycopg.connect(source.owner_dsn) as connection:
        connection.execute(_ROWS, (2 * entities,))
    directory, connect = world.directory / f"backup-{entities}", world.filled(entities)
    with world.service(connect, source.service_dsn) as service, progress.status("  recording the states"):
        service.wait_recorded(_RECORDED_S)
    file = str(directory / "backup.tar")
    here = Commands(directory, connect=connect, dsn=source.service_dsn).environment
    there = Commands(directory, connect=make_chroot(world.zookeeper.hosts), dsn=target.service_dsn).environment
    there["CONFPLANE_POSTGRES__MIGRATION_DSN"] = target.owner_dsn
    return {
        "backup": _run(here, "backup", file),
        "verify": _run(here, "verify", file),
        "restore": _run(there, "restore", file, "--reason", "measured", "--yes"),
    }


def _run(environment: Mapping[str, str], *arguments: str) -> tuple[float, float]:
    with progress.status(f"  {arguments[0]}"):
        used = used_by(*arguments, environment=environment)
    progress.print(f"  {arguments[0]}: {used.seconds:.0f} s, {used.megabytes:.0f} MB")
    return used.seconds, used.megabytes
