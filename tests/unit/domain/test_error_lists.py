"""Several errors of one entity: all are reported at once, the first one as before."""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

from confplane.domain.broker_levels import ConfigLevels, DynamicLevel
from confplane.domain.brokers import check_level, validate
from confplane.domain.changes import encode_ops
from confplane.domain.client_configs import ClientConfigsFacet
from confplane.domain.client_metrics import check_client_metrics
from confplane.domain.entities import Entity
from confplane.domain.errors import ConfplaneError, ErrorList, InvalidRequestError
from confplane.domain.groups import check_group
from confplane.domain.incremental import check_list_ops, check_ops
from confplane.domain.ops import Op, OpType
from confplane.domain.quotas import ClientQuotasFacet
from confplane.domain.topics import check_topic
from tests.support.catalogs import NEWEST, ZOOKEEPER

if TYPE_CHECKING:
    from collections.abc import Callable

ALICE: Final = Entity.from_id("user=alice")


def op(key: str, value: str | float | None, kind: OpType = OpType.SET) -> Op:
    return Op(key, kind, value, f"/{key}")


def pointers(*keys: str) -> dict[str, str]:
    return {key: f"/{key}" for key in keys}


CHECKS: Final[dict[str, tuple[Callable[[], object], list[str]]]] = {
    "quotas": (
        lambda: encode_ops(
            ClientQuotasFacet(),
            ALICE,
            [op("producer_byte_rate", -1), op("consumer_byte_rate", 1), op("request_percentage", "1"), op("x", 1)],
            exact=True,
        ),
        ["/producer_byte_rate", "/request_percentage", "/x"],
    ),
    "client configs": (
        lambda: encode_ops(
            ClientConfigsFacet(NEWEST),
            ALICE,
            [op("acks", "7"), op("session.timeout.ms", "1"), op("akcs", "1"), op("supported.configs", None)],
            exact=True,
        ),
        ["/acks", "/session.timeout.ms", "/akcs", "/supported.configs"],
    ),
    "values that are not strings": (
        lambda: check_ops([op("a", 1), op("b", "x"), op("c", 2.0)]),
        ["/a", "/c"],
    ),
    "repeated keys": (
        lambda: check_ops([op("a", "1"), op("a", "2"), op("b", "3"), op("b", "4")]),
        ["/a", "/b"],
    ),
    "appends to what is not a list": (
        lambda: check_list_ops(
            [op("retention.ms", "1", OpType.APPEND), op("nonsense", "1", OpType.SUBTRACT)], NEWEST.topic
        ),
        ["/retention.ms", "/nonsense"],
    ),
    "topic": (
        lambda: check_topic(
            {"flush.ms": "soon", "nonsense": "1", "retention.ms": "1"},
            levels=ConfigLevels(NEWEST),
            pointers=pointers("flush.ms", "nonsense", "retention.ms"),
        ),
        ["/flush.ms", "/nonsense"],
    ),
    "rules of several topic configs": (
        lambda: check_topic(
            {
                "remote.storage.enable": "true",
                "cleanup.policy": "compact",
                "local.retention.ms": "9",
                "retention.ms": "5",
            },
            levels=ConfigLevels(NEWEST, static={"remote.log.storage.system.enable": "true"}),
            pointers=pointers("remote.storage.enable", "local.retention.ms"),
        ),
        ["/remote.storage.enable", "/local.retention.ms"],
    ),
    "group": (
        lambda: check_group(
            {"consumer.session.timeout.ms": "x", "nonsense": "1"},
            levels=ConfigLevels(NEWEST, static={}),
            pointers=pointers("consumer.session.timeout.ms", "nonsense"),
        ),
        ["/consumer.session.timeout.ms", "/nonsense"],
    ),
    "bounds of a group": (
        lambda: check_group(
            {"consumer.session.timeout.ms": "1", "share.session.timeout.ms": "1"},
            levels=ConfigLevels(NEWEST, static={}),
            pointers=pointers("consumer.session.timeout.ms", "share.session.timeout.ms"),
        ),
        ["/consumer.session.timeout.ms", "/share.session.timeout.ms"],
    ),
    "client metrics": (
        lambda: check_client_metrics(
            NEWEST,
            {"interval.ms": "1", "match": "a=b=c", "nonsense": "1"},
            pointers=pointers("interval.ms", "match", "nonsense"),
        ),
        ["/interval.ms", "/match", "/nonsense"],
    ),
    "broker": (
        lambda: check_level(
            ZOOKEEPER,
            {"broker.id": "1", "log.cleaner.threads": "many", "message.max.bytes": "-1"},
            level=DynamicLevel.BROKER,
            pointers=pointers("broker.id", "log.cleaner.threads", "message.max.bytes"),
        ),
        ["/broker.id", "/log.cleaner.threads", "/message.max.bytes"],
    ),
    "default of all brokers": (
        lambda: check_level(
            ZOOKEEPER,
            {"broker.id": "1", "listener.name.a.ssl.key.password": "x", "message.max.bytes": "-1"},
            level=DynamicLevel.DEFAULT,
            pointers=pointers("broker.id", "listener.name.a.ssl.key.password", "message.max.bytes"),
        ),
        ["/broker.id", "/listener.name.a.ssl.key.password", "/message.max.bytes"],
    ),
    "values of a broker that do not fit together": (
        lambda: validate(
            {"log.retention.ms": "0", "num.io.threads": "100"},
            level=DynamicLevel.BROKER,
            levels=ConfigLevels(ZOOKEEPER, static={}),
            pointers=pointers("log.retention.ms", "num.io.threads"),
        ),
        ["/num.io.threads", "/log.retention.ms"],
    ),
}


@pytest.mark.parametrize(("check", "expected"), CHECKS.values(), ids=CHECKS)
def test_every_fault_has_an_error(check: Callable[[], object], expected: list[str]) -> None:
    with pytest.raises(ConfplaneError) as caught:
        check()
    found = [caught.value, *caught.value.further]
    assert [each.pointer for each in found] == expected
    assert len({each.detail for each in found}) == len(found)


def test_the_number_of_errors_is_bounded() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        encode_ops(ClientQuotasFacet(), ALICE, [op(f"x{number}", 1) for number in range(100)], exact=True)
    assert [each.pointer for each in caught.value.further] == [f"/x{number}" for number in range(1, ErrorList.MOST)]


def test_an_empty_list_raises_nothing() -> None:
    ErrorList().raise_all()


def test_raised_errors_are_freed_without_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            with suppress(InvalidRequestError):
                encode_ops(ClientQuotasFacet(), ALICE, [op("x", 1), op("y", 1)], exact=True)
        left = [each for each in gc.get_objects() if isinstance(each, InvalidRequestError)]
    finally:
        gc.enable()
    assert left == []
