"""File descriptors: as many as the connections need."""

from __future__ import annotations

import logging
import resource
from typing import Final

from confplane.listener.connections import RESERVE

logger = logging.getLogger(__name__)

_MOST: Final = 65_536
_OWN: Final = 256
"""Descriptors for stores, files and the loop itself."""
_FEWEST: Final = 16


def connections_within(wanted: int) -> int:
    """Raise the soft limit of file descriptors, and return the number of connections within it.

    Args:
        wanted: The wanted number; a smaller result is logged.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError) as error:
            logger.warning("the limit of file descriptors stays at %d: %s", soft, error)
        else:
            soft = most
    room = wanted if soft == resource.RLIM_INFINITY else max(_FEWEST, min(wanted, soft - RESERVE - _OWN))
    if room < wanted:
        logger.warning(
            "%d connections are served, and not http.max_connections=%d: the process may have %d file descriptors; "
            "raise the hard limit (ulimit -Hn, LimitNOFILE)",
            room,
            wanted,
            soft,
        )
    return room
