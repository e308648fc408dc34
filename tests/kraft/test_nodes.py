"""The clusters that tests run: real nodes that start, stop, end by a kill, and are held."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.support import kraft
from tests.support.kraft import Voter, kraft_cluster

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


@pytest.mark.long
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


def test_a_port_that_another_process_takes_is_replaced(
    tmp_path: Path, kraft_class_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        given = iter([kraft.Voter(101, taken)])
        monkeypatch.setattr(kraft, "Voter", lambda node_id: next(given, None) or Voter(node_id))
        with kraft_cluster(tmp_path, kraft_class_path, brokers=0, controllers=1) as cluster:
            (controller,) = cluster.controllers
            assert controller.port != taken
            assert connects(controller.controller)
        assert next(given, None) is None
