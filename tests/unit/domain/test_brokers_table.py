"""Every dynamic broker config: where it can be set, a value that is taken, one that is not, and what is said then."""

from __future__ import annotations

import pytest

from confplane.domain.broker_keys import is_sensitive
from confplane.domain.broker_levels import ConfigLevels, DynamicLevel
from confplane.domain.brokers import check_level, validate
from confplane.domain.definitions import Scope
from confplane.domain.errors import ConfplaneError, InvalidRequestError, KafkaCode
from tests.support.catalogs import ZOOKEEPER

# key | scope | accepted | refused, on a broker whose file is empty | error; "any" takes every string.
TABLE = """
advertised.listeners | per-broker | PLAINTEXT://kafka-0:9092 | PLAINTEXT://0.0.0.0:9092 | must not advertise 0.0.0.0
background.threads | cluster-wide | 5 | 21 | can be between 5 and 20 next
compression.gzip.level | cluster-wide | 9 | 0 | must be at least 1, or -1
compression.lz4.level | cluster-wide | 17 | 18 | must be at most 17
compression.type | cluster-wide | zstd | none | must be one of uncompressed, zstd, lz4, snappy, gzip, producer
compression.zstd.level | cluster-wide | -7 | 23 | must be at most 22
follower.replication.throttled.rate | cluster-wide | 0 | -1 | must be at least 0
leader.replication.throttled.rate | cluster-wide | 1048576 | 1.5 | must be a whole number (LONG)
listener.security.protocol.map | per-broker | PLAINTEXT:PLAINTEXT,EXTERNAL:SSL | EXTERNAL:TLS | must be a list of NAME:PROTOCOL
listeners | per-broker | PLAINTEXT://:9092,SSL://:9093 | PLAINTEXT:9092 | must be a list of NAME://host:port
log.cleaner.backoff.ms | cluster-wide | 0 | -1 | must be at least 0
log.cleaner.dedupe.buffer.size | cluster-wide | 1048577 | 1048576 | must be more than 1048576 bytes for each of the 1
log.cleaner.delete.retention.ms | cluster-wide | 0 | -1 | must be at least 0
log.cleaner.io.buffer.load.factor | cluster-wide | 0.75 | much | must be a number (DOUBLE)
log.cleaner.io.buffer.size | cluster-wide | 0 | -1 | must be at least 0
log.cleaner.io.max.bytes.per.second | cluster-wide | 1e7 | 1_0 | must be a number (DOUBLE)
log.cleaner.max.compaction.lag.ms | cluster-wide | 1 | 0 | must be at least 1
log.cleaner.min.cleanable.ratio | cluster-wide | 1 | 1.01 | must be at most 1
log.cleaner.min.compaction.lag.ms | cluster-wide | 0 | -1 | must be at least 0
log.cleaner.threads | cluster-wide | 2 | 3 | can be between 1 and 2 next
log.cleanup.policy | cluster-wide | compact, delete | keep | must be a list of compact, delete
log.flush.interval.messages | cluster-wide | 1 | 0 | must be at least 1
log.flush.interval.ms | cluster-wide | 1000 | soon | must be a whole number (LONG)
log.index.interval.bytes | cluster-wide | 0 | -1 | must be at least 0
log.index.size.max.bytes | cluster-wide | 4 | 3 | must be at least 4
log.local.retention.bytes | cluster-wide | -1 | -3 | must be at least -2
log.local.retention.ms | cluster-wide | 604800000 | 604800001 | must be at most log.retention.ms, which is 604800000
log.message.downconversion.enable | cluster-wide | FALSE | no | must be one of true, false
log.message.timestamp.after.max.ms | cluster-wide | 0 | -1 | must be at least 0
log.message.timestamp.before.max.ms | cluster-wide | 0 | -1 | must be at least 0
log.message.timestamp.difference.max.ms | cluster-wide | 0 | -1 | must be at least 0
log.message.timestamp.type | cluster-wide | LogAppendTime | logappendtime | must be one of CreateTime, LogAppendTime
log.preallocate | cluster-wide | true | 1 | must be one of true, false
log.retention.bytes | cluster-wide | -1 | 9223372036854775808 | must be at least -9223372036854775808 and at most
log.retention.ms | cluster-wide | -1 | 0 | log.retention.ms must be at least 1, or -1 for no limit
log.roll.jitter.ms | cluster-wide | 0 | -1 | log.roll.jitter.ms must be at least 0
log.roll.ms | cluster-wide | 1 | 0 | log.roll.ms must be at least 1
log.segment.bytes | cluster-wide | 14 | 13 | must be at least 14
log.segment.delete.delay.ms | cluster-wide | 0 | -1 | must be at least 0
max.connection.creation.rate | cluster-wide | 1 | 0 | must be at least 1
max.connections | cluster-wide | 1 | 0 | must be at least 1
max.connections.per.ip | cluster-wide | 1 | 0 | can be 0 only where max.connections.per.ip.overrides lists
max.connections.per.ip.overrides | cluster-wide | 127.0.0.1:10, host-1:5 | ho st:1 | must be a list of host:count
message.max.bytes | cluster-wide | 0 | -1 | must be at least 0
metric.reporters | cluster-wide | any | any | -
min.insync.replicas | cluster-wide | 2 | 0 | must be at least 1
num.io.threads | cluster-wide | 16 | 17 | can be between 4 and 16 next, half and double of the 8
num.network.threads | cluster-wide | 1 | 0 | must be at least 1
num.recovery.threads.per.data.dir | cluster-wide | 2 | 8 | can be between 1 and 2 next
num.replica.fetchers | cluster-wide | 2 | 0 | must be at least 1
principal.builder.class | per-broker | com.example.Builder | not a class | must be the name of a Java class
producer.id.expiration.ms | cluster-wide | 1 | 0 | must be at least 1
remote.fetch.max.wait.ms | cluster-wide | 1 | 0 | must be at least 1
remote.log.index.file.cache.total.size.bytes | cluster-wide | 1 | 0 | must be at least 1
remote.log.manager.copy.max.bytes.per.second | cluster-wide | 1 | 0 | must be at least 1
remote.log.manager.fetch.max.bytes.per.second | cluster-wide | 1 | 0 | must be at least 1
replica.alter.log.dirs.io.max.bytes.per.second | cluster-wide | 0 | -1 | must be at least 0
sasl.enabled.mechanisms | per-broker | any | any | -
sasl.jaas.config | per-broker | org.example.Login required; | org.example.Login required | the closing semicolon is missing
sasl.kerberos.kinit.cmd | per-broker | any | any | -
sasl.kerberos.min.time.before.relogin | per-broker | 1 | 1s | must be a whole number (LONG)
sasl.kerberos.principal.to.local.rules | per-broker | any | any | -
sasl.kerberos.service.name | per-broker | any | any | -
sasl.kerberos.ticket.renew.jitter | per-broker | 0.05 | x | must be a number (DOUBLE)
sasl.kerberos.ticket.renew.window.factor | per-broker | 0.8 | x | must be a number (DOUBLE)
sasl.login.refresh.buffer.seconds | per-broker | 300 | 32768 | must be at least -32768 and at most 32767 (SHORT)
sasl.login.refresh.min.period.seconds | per-broker | 60 | x | must be a whole number (SHORT)
sasl.login.refresh.window.factor | per-broker | 0.8 | x | must be a number (DOUBLE)
sasl.login.refresh.window.jitter | per-broker | 0.05 | x | must be a number (DOUBLE)
sasl.mechanism.inter.broker.protocol | per-broker | any | any | -
ssl.cipher.suites | per-broker | any | any | -
ssl.client.auth | per-broker | required | Required | must be one of required, requested, none
ssl.enabled.protocols | per-broker | any | any | -
ssl.endpoint.identification.algorithm | per-broker | any | any | -
ssl.engine.factory.class | per-broker | com.example.Engines | 1Engine | must be the name of a Java class
ssl.key.password | prefix only | any | any | -
ssl.keymanager.algorithm | per-broker | any | any | -
ssl.keystore.certificate.chain | prefix only | any | any | -
ssl.keystore.key | prefix only | any | any | -
ssl.keystore.location | prefix only | any | any | -
ssl.keystore.password | prefix only | any | any | -
ssl.keystore.type | prefix only | any | any | -
ssl.protocol | per-broker | any | any | -
ssl.provider | per-broker | any | any | -
ssl.secure.random.implementation | per-broker | any | any | -
ssl.trustmanager.algorithm | per-broker | any | any | -
ssl.truststore.certificates | prefix only | any | any | -
ssl.truststore.location | prefix only | any | any | -
ssl.truststore.password | prefix only | any | any | -
ssl.truststore.type | prefix only | any | any | -
transaction.partition.verification.enable | cluster-wide | true | yes | must be one of true, false
unclean.leader.election.enable | cluster-wide | true | 0 | must be one of true, false
"""
ROWS = [row.split(" | ") for row in TABLE.strip().splitlines()]
EMPTY_FILE = ConfigLevels(ZOOKEEPER, static={})
AT_DEFAULT = "Cannot update these configs at default cluster level, broker id must be specified: Set({})"
ONLY_PREFIXED = "These security configs can be dynamically updated only per-listener using the listener prefix: Set({})"


def refusal(key: str, value: str, level: DynamicLevel) -> ConfplaneError:
    with pytest.raises(ConfplaneError) as caught:
        validate({key: value}, level=level, levels=EMPTY_FILE, pointers={key: "/here"})
    error = caught.value
    assert error.pointer == "/here"
    assert value not in error.detail or len(value) < 3 or not is_sensitive(ZOOKEEPER, key)
    return error


def test_the_table_is_whole() -> None:
    assert [row[0] for row in ROWS] == sorted(name for name, found in ZOOKEEPER.broker.items() if found.dynamic)
    assert len(ROWS) == 92


@pytest.mark.parametrize(("key", "scope", "accepted", "refused", "error"), ROWS, ids=[row[0] for row in ROWS])
def test_dynamic_broker_config(key: str, scope: str, accepted: str, refused: str, error: str) -> None:
    name = f"listener.name.external.{key}" if scope == "prefix only" else key
    values = ["", "some text, with a comma", "\u00fc=\"'${x}"] if accepted == "any" else [accepted, f" {accepted}\n"]
    if ZOOKEEPER.broker[key].dynamic_only:
        # Kafka takes these blanks, and its brokers then don't start.
        assert "must have no blanks around it" in refusal(key, values.pop(), DynamicLevel.BROKER).detail
    for value in values:
        validate({name: value}, level=DynamicLevel.BROKER, levels=EMPTY_FILE)
        if scope == Scope.CLUSTER_WIDE:
            validate({name: value}, level=DynamicLevel.DEFAULT, levels=EMPTY_FILE)
        else:
            at_default = refusal(name, value or "x", DynamicLevel.DEFAULT)
            assert at_default.detail == AT_DEFAULT.format(name)
            assert at_default.code is KafkaCode.INVALID_REQUEST
    if scope == "prefix only":
        for level in DynamicLevel:
            assert refusal(key, "/planted/value", level).detail == ONLY_PREFIXED.format(key)
    if refused != "any":
        for level in (
            [DynamicLevel.BROKER, DynamicLevel.DEFAULT] if scope == Scope.CLUSTER_WIDE else [DynamicLevel.BROKER]
        ):
            found = refusal(name, refused, level)
            assert isinstance(found, InvalidRequestError)
            assert error in found.detail
            assert key in found.detail


@pytest.mark.parametrize("level", DynamicLevel)
def test_what_is_not_dynamic(level: DynamicLevel) -> None:
    for name in sorted(name for name, found in ZOOKEEPER.broker.items() if not found.dynamic):
        with pytest.raises(InvalidRequestError) as caught:
            check_level(ZOOKEEPER, {name: "1"}, level=level)
        assert caught.value.detail == f"Cannot update these configs dynamically: Set({name})"
