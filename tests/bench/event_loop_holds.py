"""``confplane serve`` with a watch over its event loop, which is asked for the longest hold by a signal.

On ``SIGUSR1`` the process writes the longest hold since the last such signal, in seconds, to the file that
``CONFPLANE_BENCH_HOLDS`` names.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confplane.cli.commands import main
from confplane.store import ZooKeeperStore
from tests.bench.mirror import Holds
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.world import World
    from tests.support.service import Service

_FILE_VARIABLE: Final = "CONFPLANE_BENCH_HOLDS"
_start = ZooKeeperStore.start


@contextmanager
def service_with_longest_hold(world: World) -> Iterator[tuple[Service, Callable[[], float]]]:
    """Run a service; yields it, and a function for the seconds of the longest hold since its last call."""
    file = world.directory / "holds"
    with world.service(module=__name__, settings={_FILE_VARIABLE: str(file)}) as service:

        def longest() -> float:
            file.unlink(missing_ok=True)
            os.kill(service.pid, signal.SIGUSR1)
            wait_for(file.exists, pause_s=0.01)
            return float(file.read_text())

        yield service, longest


def _watched(store: ZooKeeperStore) -> None:
    holds, file = Holds(), Path(os.environ[_FILE_VARIABLE])
    holds.turn()

    def write() -> None:
        part = file.with_suffix(".part")
        part.write_text(f"{holds.longest_s}")
        part.replace(file)
        holds.longest_s = 0.0

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, write)
    _start(store)


if __name__ == "__main__":
    watched: Any = ZooKeeperStore
    watched.start = _watched
    main()
