"""Changes of ``confplane configs``: the requests and the printed lines, with answers that are made up.

Cases name the tests of Kafka's ConfigCommandTest that they are of.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx
import pytest

from confplane.cli.remote.configs import command
from tests.unit.cli.answers import described, entity, entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.unit.cli.answers import Recorded


class Altered(NamedTuple):
    """A change of quotas or client configs, its request, and the line of its success."""

    of: str
    line: str
    facet: str
    entity: list[dict[str, str | None]]
    ops: dict[str, Any]
    printed: str
    stored: Mapping[str, Any] = {}
    """Values that the describe before a removal finds."""


_RATES: Final = "--add-config consumer_byte_rate=20000,producer_byte_rate=10000 --delete-config request_percentage"
_RATE_OPS: Final = {"consumer_byte_rate": 20000, "producer_byte_rate": 10000, "request_percentage": None}
_USERS: Final = "Completed updating config for user"

CHANGES: Final = (
    *(
        Altered(
            "testAlterIpConfig",
            f"--entity-type ips {name} {ops}",
            "client-quotas",
            names,
            values,
            printed,
            stored,
        )
        for name, names, printed in (
            ("--entity-name 1.2.3.4", entity(ip="1.2.3.4"), "Completed updating config for ip 1.2.3.4."),
            ("--entity-default", entity(ip=None), "Completed updating default config for ips in the cluster."),
        )
        for ops, values, stored in (
            ("--add-config connection_creation_rate=100", {"connection_creation_rate": 100}, {}),
            (
                "--delete-config connection_creation_rate",
                {"connection_creation_rate": None},
                {"connection_creation_rate": 50},
            ),
        )
    ),
    *(
        Altered(
            "shouldAddClientConfig",
            f"{_RATES} {name}",
            "client-quotas",
            names,
            _RATE_OPS,
            printed,
            {"request_percentage": 50},
        )
        for name, names, printed in (
            (
                "--entity-type users --entity-name test-user-1 --entity-type clients --entity-name test-client-1",
                entity(user="test-user-1", client_id="test-client-1"),
                f"{_USERS} test-user-1.",
            ),
            (
                "--entity-type users --entity-name test-user-2 --entity-type clients --entity-default",
                entity(user="test-user-2", client_id=None),
                f"{_USERS} test-user-2.",
            ),
            ("--entity-type users --entity-name test-user-3", entity(user="test-user-3"), f"{_USERS} test-user-3."),
            (
                "--entity-type users --entity-default --entity-type clients --entity-name test-client-2",
                entity(user=None, client_id="test-client-2"),
                "Completed updating default config for users in the cluster.",
            ),
            (
                "--user-defaults --client-defaults",
                entity(user=None, client_id=None),
                "Completed updating default config for clients in the cluster.",
            ),
            ("--user-defaults", entity(user=None), "Completed updating default config for users in the cluster."),
            (
                "--client test-client-3",
                entity(client_id="test-client-3"),
                "Completed updating config for client test-client-3.",
            ),
            (
                "--client-defaults",
                entity(client_id=None),
                "Completed updating default config for clients in the cluster.",
            ),
        )
    ),
    Altered(
        "a number above 2^53",
        "--user a --add-config producer_byte_rate=9007199254740993,request_percentage=1.5e1",
        "client-quotas",
        entity(user="a"),
        {"producer_byte_rate": 9007199254740993, "request_percentage": 15.0},
        f"{_USERS} a.",
    ),
    Altered(
        "KIP-649",
        "--entity-type users --entity-name alice --add-config acks=-1 --delete-config session.timeout.ms",
        "client-configs",
        entity(user="alice"),
        {"acks": "-1", "session.timeout.ms": None},
        f"{_USERS} alice.",
        {"session.timeout.ms": "20000"},
    ),
)


def ops_of(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Ops as the API has them."""
    return [
        {"key": key, "remove": True} if value is None else {"key": key, "value": value} for key, value in values.items()
    ]


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: f"{case.of}: {case.line}")
def test_changes_of_quotas_and_client_configs(
    answered: Recorded, case: Altered, capsys: pytest.CaptureFixture[str]
) -> None:
    describe = f"{case.facet}:describe"
    found = [{"key": key, "value": value} for key, value in case.stored.items()]
    answered.answers[describe] = {"entries": [{"entity": case.entity, "values": found}], "skipped": []}
    assert command.run(["--alter", *shlex.split(case.line)]) == 0
    assert [path for path, _ in answered.sent] == [*([describe] if case.stored else []), "clients:alter"]
    member, other = ("quotas", "configs") if case.facet == "client-quotas" else ("configs", "quotas")
    [sent] = answered.sent[-1][1]["entries"]
    assert (sent["entity"], sent[member], sent[other]) == (case.entity, ops_of(case.ops), [])
    assert answered.requests[-1].headers["Idempotency-Key"]
    assert capsys.readouterr() == (f"{case.printed}\n", "")


def test_quotas_and_client_configs_of_a_command_are_one_request(answered: Recorded) -> None:
    answered.answers["client-quotas:describe"] = {
        "entries": [entry({"request_percentage": 5}, user="a")],
        "skipped": [],
    }
    added = "acks=-1,producer_byte_rate=10,heartbeat.interval.ms=3000"
    assert command.run(shlex.split(f"--alter --user a --add-config {added} --delete-config request_percentage")) == 0
    assert [path for path, _ in answered.sent] == ["client-quotas:describe", "clients:alter"]
    assert answered.sent[-1][1]["entries"] == [
        {
            "entity": entity(user="a"),
            "quotas": ops_of({"producer_byte_rate": 10, "request_percentage": None}),
            "configs": ops_of({"acks": "-1", "heartbeat.interval.ms": "3000"}),
        }
    ]


def test_topics_are_altered_key_by_key(answered: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    """shouldAlterTopicConfig."""
    stored = [(key, "1", "DYNAMIC_TOPIC_CONFIG") for key in ("min.insync.replicas", "unclean.leader.election.enable")]
    answered.answers["configs:describe"] = {"results": [described("TOPIC", "my-topic", *stored)]}
    added = "--add-config delete.retention.ms=1000000,min.insync.replicas=2"
    line = f"--topic my-topic --alter {added} --delete-config unclean.leader.election.enable"
    assert command.run(shlex.split(line)) == 0
    path, body = answered.sent[-1]
    assert path == "configs:incrementalAlter"
    assert body["resources"] == [
        {
            "resourceType": "TOPIC",
            "resourceName": "my-topic",
            "configs": [
                {"name": "delete.retention.ms", "configOperation": "SET", "value": "1000000"},
                {"name": "min.insync.replicas", "configOperation": "SET", "value": "2"},
                {"name": "unclean.leader.election.enable", "configOperation": "DELETE"},
            ],
        }
    ]
    assert answered.requests[-1].headers["Idempotency-Key"]
    assert capsys.readouterr().out == "Completed updating config for topic my-topic.\n"


@pytest.mark.parametrize(
    ("line", "resource", "name", "ops", "stored", "printed"),
    [
        (
            "--entity-type brokers --entity-name 1 --add-config message.max.bytes=10,leader.replication.throttled.rate=10",
            "BROKER",
            "1",
            {"message.max.bytes": "10", "leader.replication.throttled.rate": "10"},
            None,
            "Completed updating config for broker 1.",
        ),
        (
            "--entity-type brokers --entity-default --add-config message.max.bytes=10",
            "BROKER",
            "",
            {"message.max.bytes": "10"},
            None,
            "Completed updating default config for brokers in the cluster.",
        ),
        (
            (
                "--client-metrics 1 --delete-config interval.ms --add-config"
                " 'metrics=org.apache.kafka.consumer.,match=[client_software_name=kafka.python,client_software_version=1\\.2\\..*]'"
            ),
            "CLIENT_METRICS",
            "1",
            {
                "metrics": "org.apache.kafka.consumer.",
                "match": "client_software_name=kafka.python,client_software_version=1\\.2\\..*",
                "interval.ms": None,
            },
            ("interval.ms", "1000", "DYNAMIC_CLIENT_METRICS_CONFIG"),
            "Completed updating config for client-metric 1.",
        ),
        (
            "--group g --delete-config consumer.session.timeout.ms --add-config consumer.heartbeat.interval.ms=6000",
            "GROUP",
            "g",
            {"consumer.heartbeat.interval.ms": "6000", "consumer.session.timeout.ms": None},
            ("consumer.session.timeout.ms", "45000", "DYNAMIC_GROUP_CONFIG"),
            "Completed updating config for group g.",
        ),
    ],
    ids=[
        "shouldAddBrokerDynamicConfig",
        "shouldAddDefaultBrokerDynamicConfig",
        "shouldAlterClientMetricsConfig",
        "shouldAlterGroupConfig",
    ],
)
def test_changes_of_brokers_client_metrics_and_groups(
    answered: Recorded,
    line: str,
    resource: str,
    name: str,
    ops: dict[str, str | None],
    stored: tuple[str, str, str] | None,
    printed: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A broker's other configs, and passwords among them, need not be given again."""
    if stored is not None:
        answered.answers["configs:describe"] = {"results": [described(resource, name, stored)]}
    assert command.run(["--alter", *shlex.split(line)]) == 0
    [sent] = answered.sent[-1][1]["resources"]
    assert (sent["resourceType"], sent["resourceName"]) == (resource, name)
    assert {each["name"]: each.get("value") for each in sent["configs"]} == ops
    assert capsys.readouterr() == (f"{printed}\n", "")


@pytest.mark.parametrize("line", ["--topic my-topic", "--broker 1", "--user a", "--client a", "--ip 1.2.3.4"])
def test_keys_that_are_not_set_are_not_deleted(
    answered: Recorded, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """shouldNotUpdateConfigIfNonExistingConfigIsDeleted."""
    kind, name = ("TOPIC", "my-topic") if "topic" in line else ("BROKER", "1")
    answered.answers["configs:describe"] = {"results": [described(kind, name)]}
    keys = "connection_creation_rate" if "ip" in line else "producer_byte_rate, request_percentage"
    assert command.run(["--alter", *shlex.split(line), "--delete-config", keys]) == 1
    assert not any("lter" in path for path, _ in answered.sent)
    assert capsys.readouterr().err == f"Nothing was changed. These keys are not set: {keys}.\n"


@pytest.mark.parametrize(
    ("line", "key", "proposed"),
    [
        ("--user a", "producer_byte_rat", "producer_byte_rate"),
        ("--ip 1.2.3.4", "connection_creation_rates", None),
        ("--topic a", "retention.m", "retention.ms"),
        ("--broker 1", "my.plugin", None),
    ],
)
def test_a_key_that_is_not_set_is_answered_with_a_close_one(
    answered: Recorded, line: str, key: str, proposed: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, name = ("TOPIC", "a") if "topic" in line else ("BROKER", "1")
    answered.answers["configs:describe"] = {
        "results": [described(kind, name, ("retention.ms", "5", f"DYNAMIC_{kind}_CONFIG"))]
    }
    assert command.run(["--alter", *shlex.split(line), "--delete-config", key]) == 1
    assert capsys.readouterr().err.endswith(f" Did you mean {proposed}?\n") == (proposed is not None)


def test_registrations_are_cleared(answered: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    line = shlex.split("--alter --user alice --client billing --delete-config supported.configs")
    assert command.run(line) == 1
    assert "These keys are not set: supported.configs" in capsys.readouterr().err
    software = {"clientInformation": {"softwareName": "a", "softwareVersion": "1"}, "supportedConfigs": ["acks"]}
    found = entry({}, user="alice", client_id="billing") | {"entityCompatibility": [software]}
    answered.answers["client-configs:describe"] = {"entries": [found], "skipped": []}
    assert command.run(line) == 0
    assert answered.requests[-1].method == "DELETE"
    assert answered.sent[-1][0] == "registrations?id=user%3Dalice%2Cclient-id%3Dbilling"
    assert capsys.readouterr().out == "Completed updating config for client billing.\n"


@pytest.mark.parametrize("value", ["ten", "", "NaN", "1e999", "-Infinity"])
def test_quotas_that_are_no_numbers_are_refused(
    answered: Recorded, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(["--alter", "--user", "a", "--add-config", f"producer_byte_rate={value}"]) == 1
    assert answered.requests == []
    assert capsys.readouterr().err == f"The value of producer_byte_rate is not a number: {value!r}\n"


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (
            httpx.Response(400, json={"detail": "acks is unknown", "kafkaErrorName": "INVALID_REQUEST"}),
            1,
            "acks is unknown",
        ),
        (httpx.Response(504, json={"detail": "too late", "outcome": "unknown"}), 3, "too late"),
        (httpx.Response(200, json={"entries": [{"warnings": ["no client has it"]}]}), 0, "Warning: no client has it"),
    ],
)
def test_refusals_lost_answers_and_warnings(
    answered: Recorded, answer: httpx.Response, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answered.answers["alter"] = answer
    assert command.run(shlex.split("--alter --user a --add-config acks=-1")) == code
    assert said in capsys.readouterr().err
