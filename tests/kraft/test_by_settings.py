"""A service that its settings alone connect to a real Kafka 4: TLS with each login, and the metadata log."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from confplane.kraft.metadata_log import MetadataLog
from confplane.kraft.wire.errors import AnswerError
from confplane.kraft.wire.options import Address, Options
from confplane.kraft.wire.sasl import Plain
from tests.support.commands import run_target, target
from tests.support.kraft import MECHANISMS, PASSWORDS, unsecured_token
from tests.support.kraft_writer import KraftWriter
from tests.support.service import ServiceInThread
from tests.support.waiting import until, until_warned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.facets import ConfplaneClient
    from tests.support.kraft import KraftCluster
    from tests.support.servers import Database
    from tests.support.service import Service

PASSWORD = PASSWORDS["carol"]
RIGHTS = [
    *((4, "kafka-cluster", operation) for operation in (8, 10)),
    *((2, "*", operation) for operation in (8, 10)),
    (3, "*", 10),
]
"""The rights of docs/kafka4.md: DESCRIBE is 8, DESCRIBE_CONFIGS is 10; a cluster 4, a topic 2, a group 3."""


def variables(kafka: dict[str, Any]) -> dict[str, str]:
    """Return the settings of a Kafka cluster as variables."""
    return {f"CONFPLANE_CLUSTERS__DEFAULT__KAFKA__{name.upper()}": json.dumps(each) for name, each in kafka.items()}


@pytest.fixture(scope="module")
def stores(module_chroot: str, module_database: Database) -> dict[str, Any]:
    """One copy and one trail for all services of this file."""
    return {"connect": module_chroot, "dsn": module_database.service_dsn}


@contextmanager
def observing(directory: Path, stores: dict[str, Any], kafka: dict[str, Any], **more: Any) -> Iterator[Service]:
    """Import by the command, and run a service, both with the same variables."""
    service = ServiceInThread(directory, settings=variables(kafka), **stores, **more)
    target(service, "import", "--apply")
    with service:
        yield service


def secured(kraft: KraftCluster, sasl: dict[str, str]) -> dict[str, Any]:
    (node,) = kraft.nodes
    return {"bootstrap": [node.listener("SASL_SSL")], "tls": {"ca_file": node.ca_file}, "sasl": sasl}


async def shows(client: ConfplaneClient, rate: int) -> None:
    """Expect the latest quota from a strong read, which asks the cluster."""
    found = await client.request("GET", "client-quotas/user=by-settings?consistency=strong")
    assert found.body["quotas"] == {"producer_byte_rate": rate}


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_service_observes_by_tls_and_a_login(
    kraft: KraftCluster, stores: dict[str, Any], tmp_path: Path, mechanism: str
) -> None:
    token, password = unsecured_token("carol"), tmp_path / "secret"
    rate = 1000 + MECHANISMS.index(mechanism)
    if mechanism == "OAUTHBEARER":
        password.write_text(token)
        sasl = {"mechanism": mechanism, "token_file": str(password)}
    else:
        password.write_text(f"{PASSWORD}\n")
        sasl = {"mechanism": mechanism, "username": "carol", "password_file": str(password)}
    async with KraftWriter(kraft.bootstrap[0]) as writer:
        await writer.allow("User:carol", RIGHTS)
        with observing(tmp_path, stores, secured(kraft, sasl)) as service:
            await writer.quotas(({"user": "by-settings"}, {"producer_byte_rate": float(rate)}))
            async with service.client() as client:
                await shows(client, rate)
                target = (await client.request("GET", "/v1/clusters/default")).body["target"]
                assert (target["clusterId"], target["problem"]) == (kraft.cluster_id, None)
    log = service.log.read_text()
    assert PASSWORD not in log
    assert token not in log


async def test_a_wrong_password_is_reported_and_the_right_one_is_taken_up_without_a_restart(
    kraft: KraftCluster, stores: dict[str, Any], tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    sasl = {"mechanism": "SCRAM-SHA-512", "username": "carol", "password_file": str(password)}
    async with KraftWriter(kraft.bootstrap[0]) as writer:
        await writer.allow("User:carol", RIGHTS)
        await writer.quotas(({"user": "by-settings"}, {"producer_byte_rate": 2000.0}))
        with observing(tmp_path, stores, secured(kraft, sasl)) as service:
            service.stop()
            password.write_text("mistaken")
            service.start()
            async with service.client() as client:
                await until_warned(client, "refuses the login by SCRAM-SHA-512")
                # The copy is there, as old as it is.
                found = await client.request("GET", "client-quotas/user=by-settings")
                assert found.body["quotas"] == {"producer_byte_rate": 2000}
                password.write_text(PASSWORD)
                await writer.quotas(({"user": "by-settings"}, {"producer_byte_rate": 2001.0}))

                async def followed() -> bool:
                    now = await client.request("GET", "client-quotas/user=by-settings")
                    return bool(now.body["quotas"] == {"producer_byte_rate": 2001})

                await until(followed)
    log = service.log.read_text()
    assert PASSWORD not in log
    assert "mistaken" not in log


async def test_a_service_with_controllers_follows_every_write(
    kraft: KraftCluster, chroot: str, migrated: Database, tmp_path: Path
) -> None:
    (node,) = kraft.nodes
    own = {"connect": chroot, "dsn": migrated.service_dsn}
    kafka = {"bootstrap": kraft.bootstrap, "controllers": [node.controller]}
    async with KraftWriter(kraft.bootstrap[0]) as writer:
        with observing(tmp_path, own, kafka) as service:
            async with service.client() as client:

                async def log_followed() -> bool:
                    target = (await client.request("GET", "/v1/clusters/default")).body["target"]
                    return target["logOffset"] is not None

                await until(log_followed)
                for rate in (5.0, 6.0, 5.0):
                    await writer.quotas(({"user": "by-log"}, {"producer_byte_rate": rate}))

                async def recorded() -> Any:
                    rows = (await client.request("GET", "audit?entity=user=by-log")).body["items"]
                    return rows if sum(row["observed"]["writes"] for row in rows) == 3 else None

                rows = await until(recorded)
                assert {(row["kind"], row["principal"]) for row in rows} == {("observed", "External:unknown")}
                assert all(row["observed"]["exact"] for row in rows)


async def test_without_access_to_the_log_polling_continues_until_it_is_granted(
    kraft: KraftCluster, chroot: str, migrated: Database, tmp_path: Path
) -> None:
    (node,) = kraft.nodes
    own = {"connect": chroot, "dsn": migrated.service_dsn}
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    sasl = {"mechanism": "PLAIN", "username": "carol", "password_file": str(password)}
    kafka = {"bootstrap": [node.listener("SASL")], "controllers": [node.controller_login], "sasl": sasl}
    async with KraftWriter(kraft.bootstrap[0]) as writer:
        await writer.allow("User:carol", RIGHTS)
        with observing(tmp_path, own, kafka) as service:
            async with service.client() as client:
                await until(lambda: "Fetch of the metadata log is not permitted" in service.log.read_text())
                await writer.quotas(({"user": "by-rights"}, {"producer_byte_rate": 5.0}))

                async def seen() -> Any:
                    return (await client.request("GET", "audit?entity=user=by-rights")).body["items"]

                (row,) = await until(seen)
                assert not row["observed"]["exact"]
                await _not_followed(service, client)
                # CLUSTER_ACTION is 9.
                await writer.allow("User:carol", [(4, "kafka-cluster", 9)])

                async def log_followed() -> bool:
                    target = (await client.request("GET", "/v1/clusters/default")).body["target"]
                    return target["logOffset"] is not None

                await until(log_followed)
                said = run_target(service, "check")
                assert "metadata log    yes: every write is in the trail" in said.out
                await writer.quotas(({"user": "by-rights"}, {"producer_byte_rate": None}))
                rows = await until(lambda: _several(seen))
                assert rows[0]["observed"]["exact"]

                async def nothing_missing() -> bool:
                    target = (await client.request("GET", "/v1/clusters/default")).body["target"]
                    return target["logProblem"] is None

                await until(nothing_missing)
    # Its id was not asked for, which needs more rights, and is compared all the same.
    options = Options(login=lambda: Plain("carol", PASSWORD))
    log = MetadataLog([Address.parse(node.controller_login)], options, cluster_id="TheClusterThatIsMeant_")
    with pytest.raises(AnswerError, match="INCONSISTENT_CLUSTER_ID"):
        await anext(log.follow(-1))
    await log.close()


async def _not_followed(service: Service, client: ConfplaneClient) -> None:
    """Expect the missing right wherever operators look."""
    await until_warned(client, "metadata log of its Kafka cluster is not followed")
    target = (await client.request("GET", "/v1/clusters/default")).body["target"]
    assert target["logOffset"] is None
    for told in (target["logProblem"], run_target(service, "status").err, run_target(service, "check").out):
        assert "Fetch of the metadata log is not permitted" in told
        assert "needed: CLUSTER_ACTION on CLUSTER" in told


async def _several(seen: Any) -> Any:
    rows = await seen()
    return rows if len(rows) > 1 else None
