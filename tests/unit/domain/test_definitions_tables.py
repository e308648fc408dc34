"""The catalog of topics and brokers against tables of their own, row by row."""

from __future__ import annotations

import pytest

from confplane.domain.config_rules import KafkaVersion, ThrottledReplicas
from confplane.domain.definitions import (
    ConfigDef,
    ConfigKind,
    ConfigType,
    ConfigValueError,
    Prefix,
    Scope,
    canonical,
    catalog_of,
    description,
    documentation_link,
    parse,
    quota_description,
)
from confplane.domain.quotas import QUOTA_KEYS
from confplane.domain.releases import releases
from tests.support.catalogs import ZOOKEEPER

# name | scope | type | default | valid | note
BROKER = """
advertised.listeners | per-broker | STRING | null | - | -
background.threads | cluster-wide | INT | 10 | [1,...] | -
compression.gzip.level | cluster-wide | INT | -1 | [1,...,9] or -1 | -
compression.lz4.level | cluster-wide | INT | 9 | [1,...,17] | -
compression.type | cluster-wide | STRING | producer | [uncompressed, zstd, lz4, snappy, gzip, producer] | -
compression.zstd.level | cluster-wide | INT | 3 | [-131072,...,22] | -
listener.security.protocol.map | per-broker | STRING | SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT | - | -
listeners | per-broker | STRING | PLAINTEXT://:9092 | - | -
log.cleaner.backoff.ms | cluster-wide | LONG | 15000 | [0,...] | -
log.cleaner.dedupe.buffer.size | cluster-wide | LONG | 134217728 | - | -
log.cleaner.delete.retention.ms | cluster-wide | LONG | 86400000 | [0,...] | -
log.cleaner.io.buffer.load.factor | cluster-wide | DOUBLE | 0.9 | - | -
log.cleaner.io.buffer.size | cluster-wide | INT | 524288 | [0,...] | -
log.cleaner.io.max.bytes.per.second | cluster-wide | DOUBLE | 1.7976931348623157E308 | - | -
log.cleaner.max.compaction.lag.ms | cluster-wide | LONG | 9223372036854775807 | [1,...] | -
log.cleaner.min.cleanable.ratio | cluster-wide | DOUBLE | 0.5 | [0,...,1] | -
log.cleaner.min.compaction.lag.ms | cluster-wide | LONG | 0 | [0,...] | -
log.cleaner.threads | cluster-wide | INT | 1 | [0,...] | -
log.cleanup.policy | cluster-wide | LIST | delete | [compact, delete] | -
log.flush.interval.messages | cluster-wide | LONG | 9223372036854775807 | [1,...] | -
log.flush.interval.ms | cluster-wide | LONG | null | - | -
log.index.interval.bytes | cluster-wide | INT | 4096 | [0,...] | -
log.index.size.max.bytes | cluster-wide | INT | 10485760 | [4,...] | -
log.local.retention.bytes | cluster-wide | LONG | -2 | [-2,...] | -
log.local.retention.ms | cluster-wide | LONG | -2 | [-2,...] | -
log.message.downconversion.enable | cluster-wide | BOOLEAN | true | - | -
log.message.timestamp.after.max.ms | cluster-wide | LONG | 9223372036854775807 | [0,...] | -
log.message.timestamp.before.max.ms | cluster-wide | LONG | 9223372036854775807 | [0,...] | -
log.message.timestamp.difference.max.ms | cluster-wide | LONG | 9223372036854775807 | [0,...] | -
log.message.timestamp.type | cluster-wide | STRING | CreateTime | [CreateTime, LogAppendTime] | -
log.preallocate | cluster-wide | BOOLEAN | false | - | -
log.retention.bytes | cluster-wide | LONG | -1 | - | -
log.retention.ms | cluster-wide | LONG | null | - | -
log.roll.jitter.ms | cluster-wide | LONG | null | - | -
log.roll.ms | cluster-wide | LONG | null | - | -
log.segment.bytes | cluster-wide | INT | 1073741824 | [14,...] | -
log.segment.delete.delay.ms | cluster-wide | LONG | 60000 | [0,...] | -
max.connection.creation.rate | cluster-wide | INT | 2147483647 | [0,...] | -
max.connections | cluster-wide | INT | 2147483647 | [0,...] | -
max.connections.per.ip | cluster-wide | INT | 2147483647 | [0,...] | -
max.connections.per.ip.overrides | cluster-wide | STRING | (empty) | - | -
message.max.bytes | cluster-wide | INT | 1048588 | [0,...] | -
metric.reporters | cluster-wide | LIST | (empty) | - | -
min.insync.replicas | cluster-wide | INT | 1 | [1,...] | -
num.io.threads | cluster-wide | INT | 8 | [1,...] | -
num.network.threads | cluster-wide | INT | 3 | [1,...] | -
num.recovery.threads.per.data.dir | cluster-wide | INT | 1 | [1,...] | -
num.replica.fetchers | cluster-wide | INT | 1 | - | -
principal.builder.class | per-broker | CLASS | DefaultKafkaPrincipalBuilder | - | -
producer.id.expiration.ms | cluster-wide | INT | 86400000 | [1,...] | -
remote.fetch.max.wait.ms | cluster-wide | INT | 500 | [1,...] | -
remote.log.index.file.cache.total.size.bytes | cluster-wide | LONG | 1073741824 | [1,...] | -
remote.log.manager.copy.max.bytes.per.second | cluster-wide | LONG | 9223372036854775807 | [1,...] | -
remote.log.manager.fetch.max.bytes.per.second | cluster-wide | LONG | 9223372036854775807 | [1,...] | -
sasl.enabled.mechanisms | per-broker | LIST | GSSAPI | - | -
sasl.jaas.config | per-broker | PASSWORD | null | - | password
sasl.kerberos.kinit.cmd | per-broker | STRING | /usr/bin/kinit | - | -
sasl.kerberos.min.time.before.relogin | per-broker | LONG | 60000 | - | -
sasl.kerberos.principal.to.local.rules | per-broker | LIST | DEFAULT | - | -
sasl.kerberos.service.name | per-broker | STRING | null | - | -
sasl.kerberos.ticket.renew.jitter | per-broker | DOUBLE | 0.05 | - | -
sasl.kerberos.ticket.renew.window.factor | per-broker | DOUBLE | 0.8 | - | -
sasl.login.refresh.buffer.seconds | per-broker | SHORT | 300 | - | -
sasl.login.refresh.min.period.seconds | per-broker | SHORT | 60 | - | -
sasl.login.refresh.window.factor | per-broker | DOUBLE | 0.8 | - | -
sasl.login.refresh.window.jitter | per-broker | DOUBLE | 0.05 | - | -
sasl.mechanism.inter.broker.protocol | per-broker | STRING | GSSAPI | - | -
ssl.cipher.suites | per-broker | LIST | (empty) | - | -
ssl.client.auth | per-broker | STRING | none | [required, requested, none] | -
ssl.enabled.protocols | per-broker | LIST | TLSv1.2,TLSv1.3 | - | -
ssl.endpoint.identification.algorithm | per-broker | STRING | https | - | -
ssl.engine.factory.class | per-broker | CLASS | null | - | -
ssl.key.password | per-broker | PASSWORD | null | - | password, prefix only
ssl.keymanager.algorithm | per-broker | STRING | SunX509 | - | -
ssl.keystore.certificate.chain | per-broker | PASSWORD | null | - | password, prefix only
ssl.keystore.key | per-broker | PASSWORD | null | - | password, prefix only
ssl.keystore.location | per-broker | STRING | null | - | prefix only
ssl.keystore.password | per-broker | PASSWORD | null | - | password, prefix only
ssl.keystore.type | per-broker | STRING | JKS | - | prefix only
ssl.protocol | per-broker | STRING | TLSv1.3 | - | -
ssl.provider | per-broker | STRING | null | - | -
ssl.secure.random.implementation | per-broker | STRING | null | - | -
ssl.trustmanager.algorithm | per-broker | STRING | PKIX | - | -
ssl.truststore.certificates | per-broker | PASSWORD | null | - | password, prefix only
ssl.truststore.location | per-broker | STRING | null | - | prefix only
ssl.truststore.password | per-broker | PASSWORD | null | - | password, prefix only
ssl.truststore.type | per-broker | STRING | JKS | - | prefix only
transaction.partition.verification.enable | cluster-wide | BOOLEAN | true | - | -
unclean.leader.election.enable | cluster-wide | BOOLEAN | false | - | -
"""
# name | type | default | valid | broker synonyms in order
TOPIC = """
cleanup.policy | LIST | delete | [compact, delete] | log.cleanup.policy
compression.gzip.level | INT | -1 | [1,...,9] or -1 | compression.gzip.level
compression.lz4.level | INT | 9 | [1,...,17] | compression.lz4.level
compression.type | STRING | producer | [uncompressed, zstd, lz4, snappy, gzip, producer] | compression.type
compression.zstd.level | INT | 3 | [-131072,...,22] | compression.zstd.level
delete.retention.ms | LONG | 86400000 | [0,...] | log.cleaner.delete.retention.ms
file.delete.delay.ms | LONG | 60000 | [0,...] | log.segment.delete.delay.ms
flush.messages | LONG | Long.MAX | [1,...] | log.flush.interval.messages
flush.ms | LONG | Long.MAX | [0,...] | log.flush.interval.ms, log.flush.scheduler.interval.ms
follower.replication.throttled.replicas | LIST | (empty) | * or list of partition:broker | none
index.interval.bytes | INT | 4096 | [0,...] | log.index.interval.bytes
leader.replication.throttled.replicas | LIST | (empty) | * or list of partition:broker | none
local.retention.bytes | LONG | -2 | [-2,...] | log.local.retention.bytes
local.retention.ms | LONG | -2 | [-2,...] | log.local.retention.ms
max.compaction.lag.ms | LONG | Long.MAX | [1,...] | log.cleaner.max.compaction.lag.ms
max.message.bytes | INT | 1048588 | [0,...] | message.max.bytes
message.downconversion.enable | BOOLEAN | true | - | log.message.downconversion.enable
message.format.version | STRING | 3.0-IV1 | any known version string | log.message.format.version
message.timestamp.after.max.ms | LONG | Long.MAX | [0,...] | log.message.timestamp.after.max.ms
message.timestamp.before.max.ms | LONG | Long.MAX | [0,...] | log.message.timestamp.before.max.ms
message.timestamp.difference.max.ms | LONG | Long.MAX | [0,...] | log.message.timestamp.difference.max.ms
message.timestamp.type | STRING | CreateTime | [CreateTime, LogAppendTime] | log.message.timestamp.type
min.cleanable.dirty.ratio | DOUBLE | 0.5 | [0,...,1] | log.cleaner.min.cleanable.ratio
min.compaction.lag.ms | LONG | 0 | [0,...] | log.cleaner.min.compaction.lag.ms
min.insync.replicas | INT | 1 | [1,...] | min.insync.replicas
preallocate | BOOLEAN | false | - | log.preallocate
remote.log.copy.disable | BOOLEAN | false | - | none
remote.log.delete.on.disable | BOOLEAN | false | - | none
remote.storage.enable | BOOLEAN | false | - | none
retention.bytes | LONG | -1 | - | log.retention.bytes
retention.ms | LONG | 604800000 | [-1,...] | log.retention.ms, log.retention.minutes (minutes x 60000), log.retention.hours (hours x 3600000)
segment.bytes | INT | 1073741824 | [14,...] | log.segment.bytes
segment.index.bytes | INT | 10485760 | [4,...] | log.index.size.max.bytes
segment.jitter.ms | LONG | 0 | [0,...] | log.roll.jitter.ms, log.roll.jitter.hours (hours x 3600000)
segment.ms | LONG | 604800000 | [1,...] | log.roll.ms, log.roll.hours (hours x 3600000)
unclean.leader.election.enable | BOOLEAN | false | - | unclean.leader.election.enable
"""
DYNAMIC_ONLY = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
WORDS = {
    "(empty)": "",
    "Long.MAX": str(2**63 - 1),
    "DefaultKafkaPrincipalBuilder": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
}


def rows(table: str) -> list[list[str]]:
    return [row.split(" | ") for row in table.strip().splitlines()]


def names(table: str) -> set[str]:
    return {row[0] for row in rows(table)}


def default_of(definition: ConfigDef) -> str:
    return "null" if definition.default is None else definition.default


@pytest.mark.parametrize(("name", "scope", "kind", "default", "valid", "note"), rows(BROKER))
def test_dynamic_broker_config(name: str, scope: str, kind: str, default: str, valid: str, note: str) -> None:
    found = ZOOKEEPER.broker[name]
    assert (found.scope, found.type) == (scope, kind)
    assert default_of(found) == WORDS.get(default, default)
    assert str(found.valid or "-") == valid
    assert found.sensitive is ("password" in note)
    assert found.prefix_only is ("prefix only" in note)
    assert found.dynamic
    assert not found.dynamic_only
    assert not found.internal


@pytest.mark.parametrize(("name", "kind", "default", "valid", "synonyms"), rows(TOPIC))
def test_topic_config(name: str, kind: str, default: str, valid: str, synonyms: str) -> None:
    found = ZOOKEEPER.topic[name]
    assert found.type == kind
    assert default_of(found) == WORDS.get(default, default)
    if "partition:broker" in valid:
        assert found.valid == ThrottledReplicas()
    elif "version" in valid:
        assert isinstance(found.valid, KafkaVersion)
    else:
        assert str(found.valid or "-") == valid
    units = {"minutes": 60_000, "hours": 3_600_000}
    assert [tuple(synonym) for synonym in found.synonyms] == [
        (part.split()[0], units.get(part.split()[0].rpartition(".")[2], 1))
        for part in synonyms.split(", ")
        if part != "none"
    ]
    assert (found.scope, found.dynamic) == (Scope.PER_TOPIC, True)


def test_there_are_no_other_definitions() -> None:
    dynamic = {name for name, found in ZOOKEEPER.broker.items() if found.dynamic}
    assert len(names(BROKER)) == 89
    assert dynamic == names(BROKER) | DYNAMIC_ONLY
    assert set(ZOOKEEPER.topic) == names(TOPIC)


@pytest.mark.parametrize("name", sorted(DYNAMIC_ONLY))
def test_rates_without_a_static_form(name: str) -> None:
    found = ZOOKEEPER.broker[name]
    assert (found.scope, found.type, found.default) == (Scope.CLUSTER_WIDE, ConfigType.LONG, str(2**63 - 1))
    assert str(found.valid) == "[0,...]"
    assert found.dynamic_only


@pytest.mark.parametrize(
    "name",
    ["log.roll.hours", "log.roll.jitter.hours", "log.retention.minutes", "log.retention.hours", "num.partitions",
     "log.flush.scheduler.interval.ms", "log.message.format.version", "log.retention.check.interval.ms",
     "default.replication.factor", "auto.create.topics.enable", "zookeeper.connect", "inter.broker.protocol.version"],
)  # fmt: skip
def test_near_but_not_dynamic(name: str) -> None:
    assert ZOOKEEPER.broker[name].scope is Scope.READ_ONLY


def test_internal_ones_are_marked() -> None:
    internal = {name for name, found in ZOOKEEPER.broker.items() if found.internal}
    assert "log.initial.task.delay.ms" in internal
    assert "num.partitions" not in internal
    assert not any(ZOOKEEPER.broker[name].dynamic for name in internal)


def test_groups() -> None:
    grouped = {name: found.group for name, found in ZOOKEEPER.broker.items() if found.group}
    retention = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    roll, jitter = ("log.roll.ms", "log.roll.hours"), ("log.roll.jitter.ms", "log.roll.jitter.hours")
    assert grouped == {
        **dict.fromkeys(retention, retention),
        **dict.fromkeys(roll, roll),
        **dict.fromkeys(jitter, jitter),
        "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    }


def test_prefixes() -> None:
    by_mechanism = {name for name, found in ZOOKEEPER.broker.items() if found.prefix is Prefix.MECHANISM}
    assert by_mechanism == {
        "connections.max.reauth.ms", "sasl.jaas.config", "sasl.login.callback.handler.class", "sasl.login.class",
        "sasl.server.callback.handler.class",
    }  # fmt: skip
    at_default = {name for name, found in ZOOKEEPER.broker.items() if found.cluster_level_prefix}
    assert at_default == {"max.connections", "max.connection.creation.rate", "num.network.threads"}
    assert ZOOKEEPER.broker["ssl.keystore.location"].prefix is Prefix.LISTENER
    assert ZOOKEEPER.broker["listeners"].prefix is None
    assert ZOOKEEPER.broker["num.io.threads"].prefix is None


@pytest.mark.parametrize("kind", [ConfigKind.TOPIC, ConfigKind.BROKER, ConfigKind.GROUP, ConfigKind.CLIENT_METRICS])
def test_every_config_that_a_describe_names_is_described(kind: ConfigKind) -> None:
    names = {name for release in releases() for name in catalog_of(release).of(kind)}
    assert names
    for name in names:
        sentence = description(kind, name)
        assert sentence is not None, name
        assert sentence.endswith("."), name
        assert len(sentence) < 200, name


def test_descriptions_of_clients_and_quotas() -> None:
    assert {name for name in ("acks", "session.timeout.ms") if description(ConfigKind.PRODUCER, name)} == {"acks"}
    for name in ("session.timeout.ms", "heartbeat.interval.ms"):
        assert description(ConfigKind.CONSUMER, name)
    for name in QUOTA_KEYS:
        assert quota_description(name).endswith(".")


def test_link() -> None:
    assert (
        documentation_link(ConfigKind.BROKER, "num.partitions", "3.9")
        == "https://kafka.apache.org/39/documentation.html#brokerconfigs_num.partitions"
    )
    assert (
        documentation_link(ConfigKind.GROUP, "share.isolation.level", "4.4")
        == "https://kafka.apache.org/44/documentation.html#groupconfigs_share.isolation.level"
    )
    assert "KIP-714" in documentation_link(ConfigKind.CLIENT_METRICS, "match", "4.4")


@pytest.mark.parametrize(
    "text", ["3.9", "3.9.1", "2.8", "0.8.0.1", "3.9-IV0", "3.9-IV0.1", "1.0.7", "0.9.0", "3.9.x", "0.10.0-IV0"]
)
def test_versions(text: str) -> None:
    assert parse(ZOOKEEPER.topic["message.format.version"], text) == text


@pytest.mark.parametrize("text", ["0.8", "4", "4.0", "0.9", "3.9.", "", "."])
def test_no_versions(text: str) -> None:
    with pytest.raises(ConfigValueError, match="must be a version of Kafka"):
        parse(ZOOKEEPER.topic["message.format.version"], text)


@pytest.mark.parametrize("text", ["*", "", "0:1", "0:1,1:2", "100:0,", " 0:1,1:2 ", ",", " * ", "0:2147483647,,"])
def test_throttled_replicas(text: str) -> None:
    assert isinstance(parse(ZOOKEEPER.topic["leader.replication.throttled.replicas"], text), list)


@pytest.mark.parametrize(
    "text",
    [
        "0", "0:1:2", "a:b", "0:-1", "*,0:1", "0 :1", "0:1;1:2", "\u0661:1", "**",
        # What Kafka takes, and its brokers then don't start with.
        "0:1, 1:2", "0:1 ,1:2", "0:1,,1:2", ",0:1", "*,", "0:2147483648", "2147483648:0", "0:1, ,", "0:" + "9" * 5000,
    ],
)  # fmt: skip
def test_no_throttled_replicas(text: str) -> None:
    with pytest.raises(ConfigValueError, match=r"must be \* alone, or a list of partition:broker"):
        parse(ZOOKEEPER.topic["leader.replication.throttled.replicas"], text)


def test_lists_of_known_values() -> None:
    policy = ZOOKEEPER.topic["cleanup.policy"]
    assert parse(policy, "compact , delete") == ["compact", "delete"]
    assert parse(policy, "") == []
    with pytest.raises(ConfigValueError, match=r"^cleanup.policy must be a list of compact, delete$"):
        parse(policy, "compact,remove")


@pytest.mark.parametrize(
    ("name", "text", "printed"),
    [
        ("log.preallocate", " TRUE", "true"),
        ("num.io.threads", "+07", "7"),
        ("log.cleaner.io.max.bytes.per.second", "1e7", "1.0E7"),
        ("log.cleaner.io.max.bytes.per.second", "Infinity", "Infinity"),
        ("log.cleaner.io.max.bytes.per.second", "1e400", "Infinity"),
        ("log.cleaner.io.max.bytes.per.second", " -1e400 ", "-Infinity"),
        ("log.cleaner.io.max.bytes.per.second", "+Infinity", "Infinity"),
        ("log.cleaner.io.max.bytes.per.second", "-NaN", "NaN"),
        ("log.cleanup.policy", " compact , delete ", "compact,delete"),
        ("ssl.client.auth", " none ", "none"),
    ],
)
def test_canonical(name: str, text: str, printed: str) -> None:
    assert canonical(ZOOKEEPER.broker[name], text) == printed


@pytest.mark.parametrize("kind", ConfigKind)
def test_every_default_is_valid_and_canonical(kind: ConfigKind) -> None:
    for found in ZOOKEEPER.of(kind).values():
        if found.default is not None:
            assert canonical(found, found.default) == found.default, found.name
