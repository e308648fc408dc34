"""The page of an entity of a real Kafka 4 cluster: what the cluster has applied, refused, and what differs there."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import pytest

from tests.console.visitor import Visitor, console_key
from tests.support.commands import target
from tests.support.kraft_writer import KraftWriter
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kraft import KraftCluster
    from tests.support.service import Service
    from tests.support.world import World

ENTITY = "/console/clusters/default/entities/user=shown"
PART = {"HX-Request": "true"}


def words(page: str) -> str:
    """Return the words of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


@pytest.fixture
def service(kraft: KraftCluster, world: World, tmp_path: Path) -> Service:
    """A service with a console that puts its values into the cluster, not started."""
    made = world.make_service(cluster={"kafka": {"bootstrap": kraft.bootstrap}}, settings=console_key(tmp_path))
    target(made, "import", "--apply")
    target(made, "adopt", "--reason", "a test")
    target(made, "enforce", "--reason", "a test")
    return made


async def test_an_entity_shows_what_the_cluster_applied_and_what_differs(service: Service, kraft: KraftCluster) -> None:
    with service:
        async with service.client() as http, KraftWriter(kraft.bootstrap[0]) as outside:
            await http.request("PUT", "client-quotas/user=shown", json={"quotas": {"producer_byte_rate": 1048576}})
            with Visitor(service) as visitor:
                visitor.signed_in()
                await until(lambda: re.search(r"revision \d+ applied", words(visitor.page(ENTITY))) is not None)
                assert f'hx-get="{ENTITY}/drift"' in visitor.page(ENTITY)
                same = "The Kafka cluster has the values that are set here."
                await until(lambda: same in visitor.get(f"{ENTITY}/drift", headers=PART).text)

                quotas = {"producer_byte_rate": 1048576.0, "consumer_byte_rate": 2097152.0}
                await outside.quotas(({"user": "shown"}, quotas))
                await until(lambda: same not in visitor.page(f"{ENTITY}/drift"))
                await until(
                    lambda: "consumer_byte_rate not set 2 MiB/s extra" in words(visitor.page(f"{ENTITY}/drift"))
                )
                assert "<html" not in visitor.get(f"{ENTITY}/drift", headers=PART).text
                assert "enforce" in words(visitor.page("/console/"))
                cells = words(visitor.page("/console/clusters/default/activity"))
                assert int(cells.split()[0].rstrip("+")) >= 1
