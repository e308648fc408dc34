"""Describes of ``confplane configs``: the requests and the printed lines, with answers that are made up.

``tests/features/test_configs_command.py`` runs the command on a real service. Cases name the tests of Kafka's ConfigCommandTest that they are of.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from confplane.cli.remote.configs import command
from tests.unit.cli.answers import described, entry

if TYPE_CHECKING:
    from tests.unit.cli.answers import Recorded


DESCRIBES: Final = ("client-quotas:describe", "client-configs:describe")


def matching(kind: str, name: str | None = None) -> dict[str, Any]:
    """A component of a filter: an exact name, the default for '', any for None."""
    if name is None:
        return {"entityType": kind, "matchType": "any"}
    if not name:
        return {"entityType": kind, "matchType": "default"}
    return {"entityType": kind, "matchType": "exact", "match": name}


# ------------------------------------------------------------ describes of users, clients, ips


class Filtered(NamedTuple):
    """A describe and its filter."""

    of: str
    line: str
    components: list[dict[str, Any]]


FILTERS: Final = (
    Filtered("testDescribeIpConfigs", "--entity-default --entity-type ips", [matching("ip", "")]),
    Filtered("testDescribeIpConfigs", "--ip-defaults", [matching("ip", "")]),
    Filtered("testDescribeIpConfigs", "--entity-type ips --entity-name 1.2.3.4", [matching("ip", "1.2.3.4")]),
    Filtered("testDescribeIpConfigs", "--ip 1.2.3.4", [matching("ip", "1.2.3.4")]),
    Filtered("testDescribeIpConfigs", "--entity-type ips", [matching("ip")]),
    Filtered("testQuotaDescribeEntities", "--entity-type clients", [matching("client-id")]),
    Filtered("testQuotaDescribeEntities", "--client a", [matching("client-id", "a")]),
    Filtered("testQuotaDescribeEntities", "--entity-type users", [matching("user")]),
    Filtered("testQuotaDescribeEntities", "--user-defaults", [matching("user", "")]),
    Filtered(
        "testQuotaDescribeEntities",
        "--entity-type users --entity-name a --entity-type clients",
        [matching("user", "a"), matching("client-id")],
    ),
    Filtered(
        "testQuotaDescribeEntities",
        "--entity-type clients --entity-type users --entity-name a",
        [matching("client-id", "a"), matching("user")],
    ),
    Filtered(
        "testQuotaDescribeEntities",
        "--entity-type users --entity-default --entity-type clients --entity-default",
        [matching("user", ""), matching("client-id", "")],
    ),
)


@pytest.mark.parametrize("case", FILTERS, ids=lambda case: case.line)
def test_filters_of_describes_are_strict(
    answered: Recorded, case: Filtered, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(["--describe", *shlex.split(case.line)]) == 0
    body = {"components": case.components, "strict": True}
    facets = DESCRIBES if any(each["entityType"] == "user" for each in case.components) else DESCRIBES[:1]
    sent = [(path, {name: found[name] for name in body}) for path, found in answered.sent]
    assert sorted(sent, key=str) == sorted(((facet, body) for facet in facets), key=str)
    assert capsys.readouterr() == ("", "")


def test_the_three_lines_of_an_entity(answered: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    answered.answers["client-quotas:describe"] = {
        "entries": [
            entry({"consumer_byte_rate": 2048, "request_percentage": 50.5}, user="alice"),
            entry({"producer_byte_rate": 20000000}, user=None),
        ],
        "skipped": [],
    }
    software = {"softwareName": "apache-kafka-java", "softwareVersion": "3.9.1"}
    answered.answers["client-configs:describe"] = {
        "entries": [
            entry({"acks": "-1", "session.timeout.ms": "11000"}, user="alice")
            | {"entityCompatibility": [{"clientInformation": software, "supportedConfigs": ["acks", "linger.ms"]}]},
            entry({}, user="bob")
            | {"entityCompatibility": [{"clientInformation": software, "supportedConfigs": ["acks"]}]},
        ],
        "skipped": [],
    }
    assert command.run(shlex.split("--describe --entity-type users")) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Quota configs for the default user-principal are producer_byte_rate=2.0E7",
        "Quota configs for user-principal 'alice' are consumer_byte_rate=2048.0, request_percentage=50.5",
        "Dynamic configs for user-principal 'alice' are acks=-1, session.timeout.ms=11000",
        "Supported dynamic configs for user-principal 'alice' are acks, linger.ms (apache-kafka-java 3.9.1)",
        "Supported dynamic configs for user-principal 'bob' are acks (apache-kafka-java 3.9.1)",
    ]


def test_pairs_ips_and_nodes_that_can_not_be_read(answered: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    answered.answers["client-quotas:describe"] = {
        "entries": [entry({"producer_byte_rate": 1}, user="CN=a b", client_id=None)],
        "skipped": ["/config/users/broken"],
    }
    assert command.run(shlex.split("--describe --entity-type users --entity-type clients")) == 1
    out, err = capsys.readouterr()
    assert out == "Quota configs for user-principal 'CN=a b', the default client-id are producer_byte_rate=1.0\n"
    assert err == "Can't be read: /config/users/broken\n"
    answered.answers["client-quotas:describe"] = {
        "entries": [entry({"connection_creation_rate": 10}, ip="1.2.3.4")],
        "skipped": [],
    }
    assert command.run(shlex.split("--describe --ip 1.2.3.4")) == 0
    assert capsys.readouterr().out == "Quota configs for ip '1.2.3.4' are connection_creation_rate=10.0\n"


# ------------------------------------------------------------ describes of topics, brokers, groups, client-metrics


def test_configs_of_a_topic_by_name_and_all_of_them(answered: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    """shouldDescribeConfigSynonyms."""
    own, static = ("retention.ms", "100", "DYNAMIC_TOPIC_CONFIG"), ("flush.ms", "7", "STATIC_BROKER_CONFIG")
    answered.answers["configs:describe"] = {"results": [described("TOPIC", "my-topic", own, static)]}
    assert command.run(shlex.split("--entity-name my-topic --entity-type topics --describe --all")) == 0
    resource = {"resourceType": "TOPIC", "resourceName": "my-topic"}
    [(path, sent)] = answered.sent
    assert (path, sent["resources"], sent["includeSynonyms"]) == ("configs:describe", [resource], True)
    retention = (
        "  retention.ms=100 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=100,"
        " DEFAULT_CONFIG:log.retention.ms=5}"
    )
    assert capsys.readouterr().out.splitlines() == [
        "All configs for topic my-topic are:",
        "  flush.ms=7 sensitive=false synonyms={STATIC_BROKER_CONFIG:flush.ms=7, DEFAULT_CONFIG:log.flush.ms=5}",
        retention,
    ]
    assert command.run(shlex.split("--topic my-topic --describe")) == 0
    assert capsys.readouterr().out.splitlines() == ["Dynamic configs for topic my-topic are:", retention]


def test_brokers_without_a_name_end_with_their_default(answered: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    """shouldDescribeConfigBrokerWithoutEntityName."""
    answered.answers["configs"] = {
        "items": [{"id": "broker"}, {"id": "broker=10"}, {"id": "broker=9"}],
        "nextPageToken": None,
    }
    secret = ("ssl.key.password", None, "DYNAMIC_BROKER_CONFIG")
    answered.answers["configs:describe"] = {
        "results": [
            described("BROKER", "9", secret, ("num.io.threads", "8", "DYNAMIC_DEFAULT_BROKER_CONFIG")),
            {
                "errorCode": 31,
                "errorMessage": "not allowed",
                "resourceType": "BROKER",
                "resourceName": "10",
                "configs": [],
            },
            described("BROKER", "", ("num.io.threads", "8", "DYNAMIC_DEFAULT_BROKER_CONFIG")),
        ]
    }
    assert command.run(shlex.split("--entity-type brokers --describe")) == 1
    assert [each["resourceName"] for each in answered.sent[1][1]["resources"]] == ["9", "10", ""]
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "Dynamic configs for broker 9 are:",
        (
            "  ssl.key.password=null sensitive=true synonyms={DYNAMIC_BROKER_CONFIG:ssl.key.password=null,"
            " DEFAULT_CONFIG:log.ssl.key.password=5}"
        ),
        "Default configs for brokers in the cluster are:",
        (
            "  num.io.threads=8 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:num.io.threads=8,"
            " DEFAULT_CONFIG:log.num.io.threads=5}"
        ),
    ]
    assert err == "Can't be read: broker 10: not allowed\n"


@pytest.mark.parametrize(
    ("kind", "resource", "item", "singular", "source"),
    [
        ("client-metrics", "CLIENT_METRICS", "client-metrics", "client-metric", "DYNAMIC_CLIENT_METRICS_CONFIG"),
        ("groups", "GROUP", "group", "group", "DYNAMIC_GROUP_CONFIG"),
        ("topics", "TOPIC", "topic", "topic", "DYNAMIC_TOPIC_CONFIG"),
    ],
)
def test_all_entities_of_a_type_are_listed_first(
    answered: Recorded,
    kind: str,
    resource: str,
    item: str,
    singular: str,
    source: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """shouldDescribeClientMetricsConfigWithoutEntityName, shouldDescribeGroupConfigWithoutEntityName."""
    answered.answers["configs"] = {"items": [{"id": f"{item}=1"}], "nextPageToken": None}
    answered.answers["configs:describe"] = {"results": [described(resource, "1", ("metrics", "x", source))]}
    assert command.run(["--entity-type", kind, "--describe"]) == 0
    assert [path for path, _ in answered.sent] == [f"configs?pageSize=1000&kind={item}", "configs:describe"]
    assert capsys.readouterr().out.startswith(f"Dynamic configs for {singular} 1 are:\n  metrics=x ")
