"""The settings of the encoders, as the service, the ciphers and the chart know them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from confplane.crypto.password_encoder import HASHES, MAX_ITERATIONS, MIN_ITERATIONS, SCHEMES
from confplane.settings import BrokerEncoderSettings, ClusterSettings, PasswordEncoderSettings


def choices(name: str) -> set[str]:
    literal, _ = get_args(BrokerEncoderSettings.model_fields[name].annotation)
    return set(get_args(literal))


def test_the_settings_offer_what_there_is() -> None:
    assert choices("cipher_algorithm") == set(SCHEMES)
    assert choices("keyfactory_algorithm") == set(HASHES)
    bounds = BrokerEncoderSettings.model_json_schema()["properties"]["iterations"]["anyOf"][0]
    assert (bounds["minimum"], bounds["maximum"]) == (MIN_ITERATIONS, MAX_ITERATIONS)


def test_brokers_are_named_by_number_as_a_settings_file_or_the_chart_writes_them() -> None:
    for number in (3, "3"):
        given: dict[str, Any] = {"secret_file": "/a", "brokers": {number: {"secret_file": "/b"}}}
        cluster = ClusterSettings.model_validate({"zookeeper": "zk:2181", "password_encoder": given})
        encoder = cluster.password_encoder
        assert isinstance(encoder, PasswordEncoderSettings)
        assert encoder.for_broker(3).secret_file == Path("/b")
        assert encoder.for_broker(4).secret_file == Path("/a")
    assert ClusterSettings(zookeeper="zk:2181").password_encoder is None
