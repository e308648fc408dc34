"""A service with a topic, a broker's password, and an encoder secret, for tools that keep configs as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.service import ServiceInThread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.servers import Database
    from tests.support.service import Service


@pytest.fixture
def service(chroot: str, migrated: Database, raw_zk: KazooClient, tmp_path: Path) -> Iterator[Service]:
    """A service on stores of the test's own, with the topic ``orders``."""
    raw_zk.ensure_path("/brokers/topics/orders")
    secret = tmp_path / "secret"
    secret.write_text("encoder-secret\n")
    cluster = {"password_encoder": {"secret_file": str(secret), "iterations": 1024}}
    with ServiceInThread(tmp_path / "service", connect=chroot, dsn=migrated.service_dsn, cluster=cluster) as running:
        yield running
