"""ZooKeeper's clock as this process knows it, and the ids of changes, made by that clock.

Ids order the trail, so the processes of a cluster make them by one clock: ZooKeeper's, from the Stats of a session's
own writes. Between two such Stats this process's monotonic clock counts, which no correction of the wall clock moves.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections import deque
from typing import TYPE_CHECKING, Final
from uuid import UUID

from confplane.services.metrics import Sample
from confplane.services.operator_warnings import OperatorWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

TOLERATED_S: Final = 60.0
"""Seconds between the process's own clock and ZooKeeper's from which a warning is given."""
_SAMPLES: Final = 16
"""Replies kept. The quickest of them counts, and a ZooKeeper clock that is set back is followed after so many
replies."""
_RANDOM_BITS: Final = 74
_LOW_BITS: Final = 62
_STEP_BITS: Final = 32
_RANDOM: Final = random.Random()  # noqa: S311 - ids are no secrets, and a system call for each costs 10 µs
# Python seeds its own generator anew in a fork, and no other: forks would make the same ids in the same millisecond.
os.register_at_fork(after_in_child=_RANDOM.seed)


class ZooKeeperClock:
    """A process's knowledge of a cluster's ZooKeeper clock. Before the first :meth:`record` the own clock counts.

    Args:
        name: The cluster's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._ahead: deque[float] = deque(maxlen=_SAMPLES)
        """Seconds by which ZooKeeper's clock was ahead of the monotonic one, at least, at each of the last replies."""
        self._skewed = False
        self._milliseconds = 0
        self._random = 0

    def begin(self) -> None:
        """Forget all samples: a new session begins, possibly after this machine was suspended."""
        self._ahead.clear()

    def record(self, mtime_ms: int) -> None:
        """Record the time of one of this session's writes, when its reply arrives."""
        self._ahead.append(mtime_ms / 1000 - time.monotonic())
        off = self.skew_s
        if (abs(off) > TOLERATED_S) is not self._skewed:
            self._skewed = not self._skewed
            if self._skewed:
                logger.warning("Cluster %s: %s", self._name, self._warning())
            else:
                logger.info("Cluster %s: this process's clock agrees with ZooKeeper's again", self._name)

    @property
    def skew_s(self) -> float:
        """Seconds by which the own clock is ahead of ZooKeeper's; 0 while unknown."""
        return time.time() - time.monotonic() - max(self._ahead) if self._ahead else 0.0

    def warnings(self) -> Iterator[OperatorWarning]:
        """Return the warnings for operators."""
        if abs(self.skew_s) > TOLERATED_S:
            yield OperatorWarning(self._warning())

    def _warning(self) -> str:
        off = self.skew_s
        side = "ahead of" if off > 0 else "behind"
        return (
            f"This process's clock is {abs(off):.0f} s {side} ZooKeeper's. Set this machine's clock, or that of"
            " ZooKeeper's leader: times in the trail are ZooKeeper's"
        )

    def metrics(self) -> Iterator[Sample]:
        """Return the metrics."""
        yield Sample("clock_ahead_seconds", self.skew_s)

    def new_id(self) -> UUID:
        """Return a UUIDv7 of ZooKeeper's time, above all earlier ones of this process."""
        now = int((time.monotonic() + max(self._ahead) if self._ahead else time.time()) * 1000)
        if now > self._milliseconds:
            self._milliseconds, self._random = now, _RANDOM.getrandbits(_RANDOM_BITS - 1)
        else:
            self._random += 1 + _RANDOM.getrandbits(_STEP_BITS)
            if self._random >> _RANDOM_BITS:
                self._milliseconds, self._random = self._milliseconds + 1, _RANDOM.getrandbits(_RANDOM_BITS - 1)
        high, low = self._random >> _LOW_BITS, self._random & ((1 << _LOW_BITS) - 1)
        return UUID(int=self._milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)
