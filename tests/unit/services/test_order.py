"""The order of the edits of one request: at once, or one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.configs import ConfigsFacet
from confplane.domain.entities import Entity
from confplane.domain.quotas import ClientQuotasFacet
from confplane.services.changes.bulk import chains
from tests.support.catalogs import ZOOKEEPER

if TYPE_CHECKING:
    from confplane.domain.facets import Facet

TOPICS = [f"topic=t{number}" for number in range(4)]
BROKERS = [f"broker={number}" for number in range(4)]
PAIRS = [f"user=a,client-id=c{number}" for number in range(3)]


@pytest.mark.parametrize(
    ("facet", "ids", "expected"),
    [
        pytest.param(ConfigsFacet(lambda: ZOOKEEPER), TOPICS, [[TOPICS]], id="topics-at-once"),
        pytest.param(ConfigsFacet(lambda: ZOOKEEPER), BROKERS, [[BROKERS]], id="brokers-at-once"),
        pytest.param(
            ConfigsFacet(lambda: ZOOKEEPER),
            [*TOPICS[:2], "broker", *BROKERS, *TOPICS[2:]],
            [[TOPICS[:2], ["broker"], BROKERS, TOPICS[2:]]],
            id="levels-in-their-order",
        ),
        pytest.param(
            ConfigsFacet(lambda: ZOOKEEPER),
            [*BROKERS, "broker"],
            [[BROKERS, ["broker"]]],
            id="the-default-last",
        ),
        pytest.param(
            ClientConfigsFacet(ZOOKEEPER),
            [PAIRS[0], "user=b", "user=a", "user=b,client-id=x", *PAIRS[1:], "user,client-id=c", "user=c"],
            [
                [[PAIRS[0]], ["user=a"], PAIRS[1:]],
                [["user=b"], ["user=b,client-id=x"]],
                [["user,client-id=c"]],
                [["user=c"]],
            ],
            id="each-user-for-itself",
        ),
        pytest.param(
            ClientQuotasFacet(),
            ["user=a", PAIRS[0], "client-id=c0", "ip=10.0.0.1"],
            [[["user=a"]], [[PAIRS[0]]], [["client-id=c0"]], [["ip=10.0.0.1"]]],
            id="quotas-read-nothing-else",
        ),
    ],
)
def test_what_runs_at_once(facet: Facet, ids: list[str], expected: list[list[list[str]]]) -> None:
    found = chains(facet.rank(Entity.from_id(entity_id)) for entity_id in ids)
    assert sorted([[ids[position] for position in stage.positions] for stage in chain] for chain in found) == sorted(
        expected
    )
    assert sorted(position for chain in found for stage in chain for position in stage.positions) == list(
        range(len(ids))
    )
