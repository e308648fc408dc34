from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confplane.crypto import BrokerSecrets, KafkaRotator, Keyring
from confplane.crypto.cipher import plan_rotation
from confplane.crypto.password_encoder import EncoderParameters, PasswordEncoder
from confplane.domain.errors import EncoderSecretMissingError

if TYPE_CHECKING:
    from collections.abc import Mapping

FAST = EncoderParameters(iterations=1024)
OLD, NEW, FOREIGN = (PasswordEncoder(secret, FAST) for secret in ("old", "new", "foreign"))
SECRETS = BrokerSecrets.of("payments", "new", old="old", parameters=FAST)


def encoded(key: str) -> bool:
    return key.endswith("password")


def opened(config: Mapping[str, str]) -> dict[str, str]:
    return {key: NEW.decode(value) for key, value in config.items() if encoded(key)}


def test_what_is_under_the_old_secret_comes_under_the_new() -> None:
    stored = {
        "log.cleaner.threads": "2",
        "a.password": OLD.encode("one"),
        "b.password": NEW.encode("two"),
        "c.password": FOREIGN.encode("three"),
        "d.password": "in clear",
        "custom": OLD.encode("not this one"),
        "e.password": OLD.encode(""),
    }
    before = dict(stored)
    rotation = plan_rotation(stored, encoded, SECRETS)
    assert stored == before
    assert rotation.needed
    assert rotation.reencoded == ("a.password", "e.password")
    assert rotation.current == ("b.password",)
    assert rotation.undecodable == ("c.password", "d.password")
    assert list(rotation.config) == list(stored)
    untouched = set(stored) - set(rotation.reencoded)
    assert {key: rotation.config[key] for key in untouched} == {key: stored[key] for key in untouched}
    assert [NEW.decode(rotation.config[key]) for key in rotation.reencoded] == ["one", ""]


def test_a_rotation_run_again_changes_nothing() -> None:
    first = plan_rotation({"a.password": OLD.encode("one")}, encoded, SECRETS)
    second = plan_rotation(first.config, encoded, SECRETS)
    assert not second.needed
    assert second.config == first.config
    assert second.current == ("a.password",)
    assert not plan_rotation({}, encoded, SECRETS).needed
    assert not plan_rotation({"x": "y"}, encoded, SECRETS).needed


@given(
    st.dictionaries(
        st.sampled_from([f"{name}.password" for name in "abcdef"]), st.text("xy\u00e9\U0001f600"), min_size=1
    ),
    st.data(),
)
@settings(max_examples=40)
def test_a_rotation_killed_anywhere_is_resumed(passwords: dict[str, str], data: st.DataObject) -> None:
    """Each broker's map is written at once, but a broker or a person may write single keys in between."""
    stored = {key: OLD.encode(password) for key, password in passwords.items()}
    done = data.draw(st.sets(st.sampled_from(sorted(passwords))))
    first = plan_rotation(stored, encoded, SECRETS)
    partly = {key: first.config[key] if key in done else value for key, value in stored.items()}
    second = plan_rotation(partly, encoded, SECRETS)
    assert set(second.reencoded) == set(passwords) - done
    assert all(second.config[key] == partly[key] for key in done)
    assert opened(second.config) == passwords


def test_without_an_old_secret_nothing_of_it_can_be_read() -> None:
    only_new = BrokerSecrets.of("payments", "new", parameters=FAST)
    rotation = plan_rotation({"a.password": OLD.encode("x"), "b.password": NEW.encode("y")}, encoded, only_new)
    assert not rotation.needed
    assert not rotation.old_known
    assert rotation.undecodable == ("a.password",)


def test_a_broker_needs_secrets_only_where_it_has_passwords() -> None:
    rotator = KafkaRotator(Keyring("payments", brokers={1: SECRETS}), encoded=encoded)
    assert rotator.rotate(1, {"a.password": OLD.encode("x")}).reencoded == ("a.password",)
    assert not rotator.rotate(2, {"log.cleaner.threads": "2"}).needed
    with pytest.raises(EncoderSecretMissingError, match=r"Broker 2 has no .*password_encoder\.secret_file"):
        rotator.rotate(2, {"a.password": OLD.encode("x")})


def test_a_secret_replaced_by_itself_is_no_work() -> None:
    secrets = BrokerSecrets.of("payments", "new", old="new", parameters=FAST)
    assert not plan_rotation({"a.password": NEW.encode("x")}, encoded, secrets).needed


def test_values_that_the_broker_s_cipher_can_t_read_are_encoded_again() -> None:
    gcm = EncoderParameters(cipher="AES/GCM/NoPadding", iterations=1024)
    secrets = BrokerSecrets.of("payments", "new", parameters=gcm)
    stored = {"a.password": NEW.encode("x"), "b.password": PasswordEncoder("new", gcm).encode("y")}
    rotation = plan_rotation(stored, encoded, secrets)
    assert rotation.reencoded == ("a.password",)
    assert "cipherAlgorithm:AES/GCM/NoPadding" in rotation.config["a.password"]
    assert opened(rotation.config) == {"a.password": "x", "b.password": "y"}
    # Other settings alone are no reason: every broker reads by what the value says.
    longer = BrokerSecrets.of("payments", "new", parameters=EncoderParameters(key_length=256, iterations=2048))
    assert not plan_rotation({"a.password": NEW.encode("x")}, encoded, longer).needed
