"""Starts both sides: a broker and a service, each on a chroot of its own with the same content."""

from __future__ import annotations

from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

from kazoo.client import KazooClient

from tests.interop.admin import Admin, JavaCalls
from tests.interop.differential.runner import Runner
from tests.interop.differential.sides import SOURCE, Confplane, Kafka
from tests.interop.differential.vocabulary import TOPICS
from tests.support.broker import BROKER_ID, ENCODER_SECRET, Broker
from tests.support.java import quick_java
from tests.support.servers import make_chroot, make_migrated
from tests.support.service import Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from confplane.devstack.postgres import Postgres

_COPIED: Final = ("/config", "/brokers", "/controller", "/controller_epoch")
"""The znodes that a service reads. The broker's own nodes would go with its session; the copies stay."""


@contextmanager
def run_both_sides(directory: Path, *, hosts: str, postgres: Postgres, class_path: str) -> Iterator[BothSides]:
    """Run both sides, ready to be asked."""
    their_chroot, our_chroot = make_chroot(hosts), make_chroot(hosts)
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(directory / "broker", class_path=class_path, connect=their_chroot))
        rpc = stack.enter_context(
            JavaCalls(
                SOURCE,
                directory / "rpc.log",
                class_path=class_path,
                bootstrap=broker.bootstrap,
                options=quick_java(),
            )
        )
        with Admin(directory, class_path=class_path, bootstrap=broker.bootstrap) as admin:
            admin.create_topics(*TOPICS)
        theirs, ours = (stack.enter_context(_connected(connect)) for connect in (their_chroot, our_chroot))
        for path in _COPIED:
            _copy(theirs, ours, path)
        secret = directory / "encoder-secret"
        secret.write_text(ENCODER_SECRET)
        database = make_migrated(postgres)
        cluster = {
            "client_configs_layout": "separate",
            # A long run makes more of them than a cluster does in fifteen minutes.
            "notifications_max": 37_000,
            "password_encoder": {"secret_file": str(secret)},
            "server_properties": {str(BROKER_ID): str(broker.properties_file)},
        }
        service = stack.enter_context(Service(directory, connect=our_chroot, dsn=database.service_dsn, cluster=cluster))
        yield BothSides(broker, rpc, service, theirs, ours)


class BothSides:
    """Both sides, running."""

    def __init__(
        self, broker: Broker, rpc: JavaCalls, service: Service, theirs: KazooClient, ours: KazooClient
    ) -> None:
        self.broker = broker
        self._rpc = rpc
        self._service = service
        self._theirs = theirs
        self._ours = ours

    @asynccontextmanager
    async def runner(self) -> AsyncIterator[Runner]:
        """Return what plays requests to them; one at a time."""
        kafka = Kafka(self._rpc, self._theirs)
        url = f"{self._service.url}/v1/clusters/default/"
        async with Confplane(url, self._service.token, self._ours) as confplane:
            yield Runner(kafka, confplane)


@contextmanager
def _connected(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=connect)
    client.start(timeout=60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def _copy(theirs: KazooClient, ours: KazooClient, path: str) -> None:
    data, _ = theirs.get(path)
    ours.ensure_path(path)
    ours.set(path, data or b"")
    for child in theirs.get_children(path):
        _copy(theirs, ours, f"{path}/{child}")
