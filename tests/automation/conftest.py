"""A service with a topic, a broker's password, and an encoder secret, for tools that keep configs as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import servers
from tests.support.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper


@pytest.fixture
def service(zookeeper: ZooKeeper, postgres: Postgres, tmp_path: Path) -> Iterator[Service]:
    """A service on stores of the test's own, with the topic ``orders``."""
    chroot, database = servers.make_chroot(zookeeper.hosts), servers.make_migrated(postgres)
    for zk in servers.raw_client(chroot):
        zk.ensure_path("/brokers/topics/orders")
    secret = tmp_path / "secret"
    secret.write_text("encoder-secret\n")
    cluster = {"password_encoder": {"secret_file": str(secret), "iterations": 1024}}
    with Service(tmp_path / "service", connect=chroot, dsn=database.service_dsn, cluster=cluster) as running:
        yield running
