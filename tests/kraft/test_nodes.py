"""The clusters that tests run: real nodes that start, stop, end by a kill, and are held."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from tests.support.kraft import kraft_cluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kraft import KraftCluster


def connects(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def test_one_node_has_all_listeners(kraft: KraftCluster) -> None:
    (node,) = kraft.nodes
    assert all(connects(node.listener(name)) for name in ("PLAINTEXT", "SASL", "SHORT", "SSL", "SASL_SSL"))
    assert connects(node.controller)


def test_a_broker_apart_from_its_controller_is_killed_and_started_again(tmp_path: Path, kraft_class_path: str) -> None:
    with kraft_cluster(tmp_path, kraft_class_path, controllers=1) as cluster:
        (broker,) = cluster.brokers
        (controller,) = cluster.controllers
        assert broker is not controller
        assert connects(broker.bootstrap)
        broker.kill()
        assert not connects(broker.bootstrap)
        assert controller.running()
        broker.start()
        assert connects(broker.bootstrap)
