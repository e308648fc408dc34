"""A cluster of three nodes that loses its active controller, a broker or a right: what an operator sees, and when it ends.

Each fault is shown by ``/readyz``, ``confplane target status``, the list of drift and the metrics, and gone from all of
them afterwards. The broker is away until the reports show it, and for ten minutes in the long test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from confplane.kraft.views import ConfigResourceType, Resource
from tests.kraft.test_adopting import RATE, kinds, put, until_released
from tests.kraft.test_adopting_faults import active, configured, value_of
from tests.support.commands import target
from tests.support.kraft import kraft_cluster, unsecured_token
from tests.support.kraft_client import client_of
from tests.support.kraft_writer import KraftWriter
from tests.support.metrics import scrape
from tests.support.stores import soon
from tests.support.waiting import until, until_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from confplane.kraft.client import KraftClient
    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster
    from tests.support.metrics import Scraped
    from tests.support.service import Service
    from tests.support.world import World

CLUSTER, TOPIC, GROUP = 4, 2, 3
DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 8, 10, 11
"""Types of resources, and operations, in ACLs."""
USER: Final = "User:tess"
BLOCKED: Final = "some changes are blocked and will be retried one at a time"
DENIED: Final = "does not permit reads of some of its topics"
FAULTS: Final = ("not observed", "changes wait", "blocked", "does not permit", "refused", "not polled in time")
"""Parts of the warnings that a fault of the Kafka cluster has."""

pytestmark = pytest.mark.timeout(900)


class Reports(NamedTuple):
    """The state of a cluster, as an operator sees it."""

    warnings: list[str]
    """The warnings of ``/readyz`` about faults of the Kafka cluster."""
    status: str
    """The output of ``confplane target status``."""
    drift: dict[str, str]
    """The state of each key that differs, by entity and key."""
    pending: float
    problem: float
    differing: float

    @property
    def figures(self) -> list[float]:
        """The metrics."""
        return [self.pending, self.problem, self.differing]

    @property
    def sound(self) -> bool:
        """True if nothing is wrong."""
        said = "Changes: none are waiting to be applied" in self.status and "waiting alone" not in self.status
        return said and not (self.warnings or self.drift or self.pending or self.problem or self.differing)


class Watched:
    """A running service whose reports are read."""

    def __init__(self, service: Service, http: ConfplaneClient) -> None:
        self._service = service
        self._http = http

    async def reports(self) -> Reports:
        """Return the reports as they are now."""
        warnings = (await self._http.request("GET", "/readyz")).body["warnings"]
        listed = (await self._http.request("GET", "drift")).body["items"]
        return Reports(
            [str(each) for each in warnings if any(fault in str(each) for fault in FAULTS)],
            target(self._service, "status"),
            {f"{each['id']} {key['key']}": key["state"] for each in listed for key in each["keys"]},
            *self._figures(scrape(self._service)),
        )

    @staticmethod
    def _figures(found: Scraped) -> list[float]:
        return [found.total(name) for name in ("apply_pending", "observation_problem", "apply_drift")]

    async def lasts(self, figures: list[float], seconds: float) -> None:
        """Wait until a change has waited for some seconds, and expect these metrics all the time."""

        def over() -> bool:
            found = scrape(self._service)
            assert self._figures(found) == figures
            return found.total("apply_lag_seconds") >= seconds

        await until_thread(over, 2 * seconds + 60)

    async def until(self, what: Callable[[Reports], bool]) -> Reports:
        """Wait until the reports show something, and return them."""
        last: list[Reports] = []

        async def shown() -> Reports | None:
            last[:] = [await self.reports()]
            return last[0] if what(last[0]) else None

        found: Reports = await until(shown, 240, why=lambda: last)
        return found


@pytest.fixture(scope="module")
def three(kraft_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftCluster]:
    """Three nodes, each a broker and a controller, with an authorizer."""
    directory = tmp_path_factory.mktemp("three")
    with kraft_cluster(directory, kraft_class_path, brokers=3, combined=3, logins=True, authorizer=True) as running:
        yield running


@pytest.fixture
async def service(three: KraftCluster, world: World, tmp_path: Path) -> Service:
    """A service with a login of its own that adopted the cluster, not started."""
    token = tmp_path / "token"
    token.write_text(unsecured_token("tess"))
    rights = [
        *((CLUSTER, "kafka-cluster", each) for each in (DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)),
        *((TOPIC, "*", each) for each in (DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)),
        *((GROUP, "*", each) for each in (DESCRIBE_CONFIGS, ALTER_CONFIGS)),
    ]
    async with KraftWriter(three.bootstrap[0]) as writer:
        await writer.allow(USER, rights)
    listeners = [each.listener("SASL") for each in three.brokers]
    login = {"bootstrap": listeners, "sasl": {"mechanism": "OAUTHBEARER", "token_file": str(token)}}
    return world.adopting(three, settings=login)


@pytest.fixture
async def client(three: KraftCluster) -> AsyncIterator[KraftClient]:
    """A client of the cluster, with all rights."""
    async with client_of(*three.bootstrap) as made:
        yield made


def _is(client: KraftClient, resource: Resource, key: str, value: str) -> Callable[[], Any]:
    async def there() -> bool:
        return await value_of(client, resource, key) == value

    return there


async def test_a_killed_controller_delays_changes_and_loses_none(
    three: KraftCluster, service: Service, client: KraftClient
) -> None:
    with service:
        async with service.client() as http:
            await until_released(http)
            await put(http, "elected", 1)
            watched = Watched(service, http)
            sound = await watched.until(lambda found: found.sound)
            assert "brokers 1, 2, 3" in sound.status
            killed = await active(three)
            killed.kill()
            await put(http, "elected", 2)
            await configured(http, "broker", "log.retention.ms", "3600000")
            # Another controller is elected, and the broker of the killed node is missed.
            left = ", ".join(str(each.node_id) for each in three.brokers if each is not killed)
            await watched.until(lambda found: found.sound and f"brokers {left};" in found.status)
            assert await client.describe_quotas_of([("user", "elected")], soon()) == {RATE: 2.0}
            assert await kinds(http, "user=elected") == ["change"] * 2
            assert await kinds(http, "broker") == ["change"]
            killed.start()
            await watched.until(lambda found: found.sound and "brokers 1, 2, 3;" in found.status)
            await until(_is(client, Resource(ConfigResourceType.BROKER, ""), "log.retention.ms", "3600000"))
            await http.request("DELETE", "client-quotas/user=elected")
            await configured(http, "broker", "log.retention.ms", "604800000")
            await watched.until(lambda found: found.sound)


@pytest.mark.parametrize(
    "seconds", [1.0, pytest.param(600.0, marks=[pytest.mark.long, pytest.mark.timeout(3600)])], ids=["", "ten-minutes"]
)
async def test_a_broker_that_is_away_holds_up_its_own_configs_alone(
    three: KraftCluster, service: Service, client: KraftClient, seconds: float
) -> None:
    controller = await active(three)
    away = next(each for each in three.brokers if each is not controller)
    own, key = f"broker={away.node_id}", "log.cleaner.threads"
    with service:
        async with service.client() as http:
            await until_released(http)
            watched = Watched(service, http)
            await watched.until(lambda found: found.sound)
            away.kill()
            await configured(http, own, key, "2")
            await put(http, "beside", 7)
            shown = await watched.until(lambda found: any(BLOCKED in each for each in found.warnings))
            assert any(f"{own}: " in each for each in shown.warnings)
            # The change of the other entity is applied, and no poll fails.
            await until(lambda: _has(client, 7.0))
            alone = await watched.until(lambda found: found.drift == {f"{own} {key}": "pending"})
            # That is all, however long the broker is away.
            await watched.lasts([1, 0, 1], seconds)
            for shown in (alone, await watched.reports()):
                assert shown.drift == {f"{own} {key}": "pending"}
                assert shown.figures == [1, 0, 1]
                assert "changes, waiting alone: 1" in shown.status
                assert f"{own}: " in shown.status
                assert all(BLOCKED in each for each in shown.warnings)
            away.start()
            await watched.until(lambda found: found.sound)
            assert await value_of(client, Resource(ConfigResourceType.BROKER, str(away.node_id)), key) == "2"
            assert await kinds(http, own) == await kinds(http, "user=beside") == ["change"]
            await http.request("DELETE", "client-quotas/user=beside")
            await http.request("DELETE", f"configs/{own}")
            await watched.until(lambda found: found.sound)


async def _has(client: KraftClient, rate: float) -> bool:
    return await client.describe_quotas_of([("user", "beside")], soon()) == {RATE: rate}


async def test_a_deny_is_reported_by_name_and_ends_with_its_removal(
    three: KraftCluster, service: Service, client: KraftClient
) -> None:
    key, names = "retention.ms", ("denied", "other")
    async with KraftWriter(three.bootstrap[0]) as writer:
        await writer.create_topics(*names)
        with service:
            async with service.client() as http:
                await until_released(http)
                watched = Watched(service, http)
                for name in names:
                    await configured(http, f"topic={name}", key, "1000")
                await watched.until(lambda found: found.sound)

                # Changes of the topic wait, and those of the other one are applied.
                await writer.allow(USER, [(TOPIC, "denied", ALTER_CONFIGS)], deny=True)
                for name in names:
                    await configured(http, f"topic={name}", key, "2000")
                shown = await watched.until(lambda found: found.drift == {f"topic=denied {key}": "pending"})
                shown = await watched.until(lambda found: any(BLOCKED in each for each in found.warnings))
                assert any("topic=denied: " in each for each in shown.warnings)
                assert shown.figures == [1, 0, 1]
                assert "changes, waiting alone: 1" in shown.status
                await until(_is(client, Resource(ConfigResourceType.TOPIC, "other"), key, "2000"))
                await writer.end_denial(USER, TOPIC, "denied", ALTER_CONFIGS)
                await watched.until(lambda found: found.sound)
                assert await value_of(client, Resource(ConfigResourceType.TOPIC, "denied"), key) == "2000"

                # External changes of the topic are not seen, and those of the other one are followed.
                await writer.allow(USER, [(TOPIC, "denied", DESCRIBE_CONFIGS)], deny=True)
                shown = await watched.until(lambda found: any(DENIED in each for each in found.warnings))
                assert any("topic=denied: " in each for each in shown.warnings)
                assert "topics, not permitted: 1" in shown.status
                assert (shown.drift, shown.figures) == ({}, [0, 0, 0])
                await writer.configs(*((Resource(ConfigResourceType.TOPIC, name), {key: "3000"}) for name in names))
                await until(lambda: _stored(http, "other", "3000"))
                assert await _stored(http, "denied", "2000")
                await writer.end_denial(USER, TOPIC, "denied", DESCRIBE_CONFIGS)
                await until(lambda: _stored(http, "denied", "3000"))
                await watched.until(lambda found: found.sound)
                assert await kinds(http, "topic=denied") == ["change", "change", "observed"]
        await writer.delete_topics(*names)


async def _stored(http: ConfplaneClient, topic: str, value: str) -> bool:
    return bool((await http.request("GET", f"configs/topic={topic}")).body["configs"]["retention.ms"] == value)
