"""Resources of a polled read: rendered once for each node, and anew for another release of the cluster."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from confplane.api.resources.handlers import _rendered
from confplane.domain.changes import Node
from confplane.domain.configs import ConfigsFacet
from confplane.domain.definitions import catalog_of
from confplane.domain.facets import Tree
from confplane.domain.quotas import ClientQuotasFacet
from confplane.services.cluster_facet import ClusterFacet
from confplane.services.reads.describe import DescribeService

if TYPE_CHECKING:
    from confplane.services.ports.registrations import RegistrationLog

NODE = Node("broker=1", ("log.remote.copy.lag.ms", "5"), 0, 1, 1, 0)
"""A config of Kafka 4.4; unknown to 3.9, so its value may be a secret there."""


def test_another_release_reads_the_same_node_again() -> None:
    release = "3.9"
    store: Any = SimpleNamespace(name="c", catalog=lambda: catalog_of(release))
    collection = ClusterFacet(ConfigsFacet(lambda: catalog_of(release)), Tree.CONFIG, store, cast("Any", None))
    describe = DescribeService(cast("RegistrationLog", None))

    def shown() -> Any:
        return json.loads(_rendered(describe, collection, NODE, collection.catalog).body)["configs"]

    assert shown() == {"log.remote.copy.lag.ms": None}
    release = "4.4"
    assert shown() == {"log.remote.copy.lag.ms": "5"}
    assert _rendered(describe, collection, NODE, collection.catalog) is _rendered(
        describe, collection, NODE, collection.catalog
    )
    release = "3.9"
    assert shown() == {"log.remote.copy.lag.ms": None}


def test_a_large_node_is_rendered_each_time() -> None:
    describe = DescribeService(cast("RegistrationLog", None))
    collection = ClusterFacet(ClientQuotasFacet(), Tree.CONFIG, cast("Any", None), cast("Any", None))
    for size, is_cached in ((10, True), (10_000, False)):
        node = Node("user=a", ("producer_byte_rate", "1", "foreign", "x" * size), 1, 1, 1, 0)
        both = [_rendered(describe, collection, node, None) for _ in range(2)]
        assert both[0].body == both[1].body
        assert (both[0] is both[1]) == is_cached
