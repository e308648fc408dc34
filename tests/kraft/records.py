"""The metadata log of a test's cluster, as the authority on what was written."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confplane.connection_settings import KafkaSettings
from confplane.kraft.cluster import KraftCluster as Cluster
from confplane.kraft_wiring import rules_of
from tests.support.catalogs import NEWEST

if TYPE_CHECKING:
    from tests.support.kraft import KraftCluster


async def offsets(kraft: KraftCluster) -> list[int]:
    """Return the offsets of all records that set or remove a quota or a config, or make or remove a topic."""
    (node,) = kraft.nodes
    settings = KafkaSettings(bootstrap=tuple(kraft.bootstrap), controllers=(node.controller,))
    cluster = Cluster("test", settings, rules_of(lambda: NEWEST), lambda: None)
    try:
        end = await cluster.barrier(time.monotonic() + 30)
        found: list[int] = []
        async for page in cluster.follow(-1):
            found += [each.offset for each in page.changes]
            if page.until >= end:
                return found
    finally:
        await cluster.close()
    raise AssertionError("the log has no end")
