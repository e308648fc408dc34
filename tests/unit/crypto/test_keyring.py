from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from confplane.crypto import BrokerSecrets, KafkaCipher, Keyring, KeyringError
from confplane.crypto.fingerprints import constant_time_equal, fingerprinter
from confplane.crypto.password_encoder import PasswordEncoder
from confplane.domain.errors import EncoderSecretMissingError, KafkaCode, UndecodablePasswordError
from confplane.settings import PasswordEncoderSettings

if TYPE_CHECKING:
    from pathlib import Path

KEY = "listener.name.external.ssl.keystore.password"


def keyring(tmp_path: Path, brokers: dict[int, dict[str, Any]] | None = None, **settings: Any) -> Keyring:
    """Write each ``*secret`` to a file and build the keyring of the settings that name them."""
    return Keyring.from_settings(
        "payments",
        PasswordEncoderSettings(
            **files(tmp_path, settings, "cluster"),
            brokers={number: files(tmp_path, own, str(number)) for number, own in (brokers or {}).items()},
        ),
    )


def files(folder: Path, given: dict[str, Any], prefix: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in given.items():
        if name in {"secret", "old_secret"}:
            path = folder / f"{prefix}-{name}"
            path.write_text(f"{value}\n", "utf-8")
            settings[f"{name}_file"] = path
        else:
            settings[name] = value
    return settings


def test_a_broker_has_its_own_secret_and_the_others_the_cluster_s(tmp_path: Path) -> None:
    secrets = keyring(tmp_path, {1: {"secret": "of one"}}, secret="of all")
    cipher = KafkaCipher(secrets)
    assert PasswordEncoder("of one").decode(cipher.encode(1, KEY, "x")) == "x"
    assert PasswordEncoder("of all").decode(cipher.encode(2, KEY, "x")) == "x"
    assert PasswordEncoder("of all").decode(secrets.secret_for(None).current.encode("x")) == "x"
    assert cipher.decode(1, KEY, PasswordEncoder("of one").encode("y")) == "y"
    with pytest.raises(UndecodablePasswordError) as caught:
        cipher.decode(1, KEY, PasswordEncoder("of all").encode("y"))
    assert caught.value.detail == (
        f"The stored value of {KEY} of broker 1 can't be decoded: its encoder secret does not open it, or it was altered"
    )
    assert secrets.secret_for(2) is secrets.secret_for(3)


def test_either_secret_decodes_while_both_are_set(tmp_path: Path) -> None:
    cipher = KafkaCipher(keyring(tmp_path, secret="new", old_secret="old"))
    for secret in ("new", "old"):
        assert cipher.decode(0, KEY, PasswordEncoder(secret).encode("x")) == "x"
    assert PasswordEncoder("new").decode(cipher.encode(0, KEY, "x")) == "x"
    with pytest.raises(UndecodablePasswordError, match="neither of its encoder secrets opens it") as caught:
        cipher.decode(0, KEY, PasswordEncoder("older").encode("x"))
    assert caught.value.__context__ is None


def test_a_broker_with_its_own_secret_has_no_old_one_but_its_own(tmp_path: Path) -> None:
    brokers = {1: {"secret": "of one"}, 2: {"old_secret": "of two"}, 3: {"secret": "of three", "old_secret": "once"}}
    secrets = keyring(tmp_path, brokers, secret="new", old_secret="old")
    cipher = KafkaCipher(secrets)
    assert secrets.secret_for(1).old is None
    # This one goes from a secret of its own to the cluster's.
    assert cipher.decode(2, KEY, PasswordEncoder("of two").encode("x")) == "x"
    assert PasswordEncoder("new").decode(cipher.encode(2, KEY, "x")) == "x"
    assert cipher.decode(3, KEY, PasswordEncoder("once").encode("x")) == "x"
    assert cipher.decode(4, KEY, PasswordEncoder("old").encode("x")) == "x"


def test_parameters_are_the_broker_s_then_the_cluster_s_then_kafka_s(tmp_path: Path) -> None:
    secrets = keyring(
        tmp_path,
        {
            1: {"cipher_algorithm": "AES/GCM/NoPadding"},
            2: {"key_length": 128, "keyfactory_algorithm": "PBKDF2WithHmacSHA1"},
        },
        secret="s",
        key_length=256,
        iterations=2048,
    )
    found = {number: secrets.secret_for(number).current.parameters for number in (1, 2, 3)}
    assert [(p.cipher, p.key_length, p.key_factory, p.iterations) for p in found.values()] == [
        ("AES/GCM/NoPadding", 256, "PBKDF2WithHmacSHA512", 2048),
        ("AES/CBC/PKCS5Padding", 128, "PBKDF2WithHmacSHA1", 2048),
        ("AES/CBC/PKCS5Padding", 256, "PBKDF2WithHmacSHA512", 2048),
    ]


@pytest.mark.parametrize("secrets", [Keyring("payments"), Keyring.from_settings("payments", None)])
def test_a_missing_secret_is_reported_with_the_settings_to_set(secrets: Keyring) -> None:
    cipher = KafkaCipher(secrets)
    for call in (
        lambda: cipher.encode(7, KEY, "x"),
        lambda: cipher.decode(7, KEY, "x"),
        lambda: cipher.matches(7, KEY, "x", "x"),
    ):
        with pytest.raises(EncoderSecretMissingError) as caught:
            call()
        assert caught.value.code is KafkaCode.INVALID_CONFIG
        assert "clusters.payments.password_encoder.secret_file" in caught.value.detail
        assert "clusters.payments.password_encoder.brokers.7.secret_file" in caught.value.detail
    with pytest.raises(EncoderSecretMissingError, match="This cluster has no password encoder secret"):
        secrets.secret_for(None)
    assert cipher.fingerprint(7, KEY, "x") is None
    assert not secrets.knows(7)


def test_a_broker_s_secret_is_not_the_cluster_s(tmp_path: Path) -> None:
    secrets = keyring(tmp_path, {1: {"secret": "of one"}, 2: {"iterations": 2048}})
    assert [secrets.knows(number) for number in (1, 2, 3, None)] == [True, False, False, False]
    assert repr(secrets) == "Keyring('payments', fallback=False, brokers=[1])"


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        (b" planted \t\r\n", "planted"),
        ("\ufeffplanted\n".encode(), "planted"),
        (b"two words, and: more", "two words, and: more"),
        # Java trims no further than this.
        ("planted\u00a0".encode(), "planted\u00a0"),
    ],
)
def test_a_secret_is_trimmed_as_kafka_trims_it(tmp_path: Path, content: bytes, secret: str) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    secrets = Keyring.from_settings("payments", PasswordEncoderSettings(secret_file=path))
    assert PasswordEncoder(secret).decode(secrets.secret_for(0).current.encode("x")) == "x"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "can't be read: No such file or directory"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"password.encoder.secret=planted\nmore=1", "has several lines; it must hold the secret alone"),
        (b"planted\xff", "is not a text file in UTF-8"),
    ],
)
def test_a_file_without_a_secret_is_named(tmp_path: Path, content: bytes | None, problem: str) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("good")
    if content is not None:
        bad.write_bytes(content)
    setting = "clusters.payments.password_encoder"
    for settings, name in (
        ({"secret_file": bad}, f"{setting}.secret_file"),
        ({"secret_file": good, "old_secret_file": bad}, f"{setting}.old_secret_file"),
        ({"brokers": {"3": {"secret_file": bad}}}, f"{setting}.brokers.3.secret_file"),
    ):
        with pytest.raises(KeyringError) as caught:
            Keyring.from_settings("payments", PasswordEncoderSettings.model_validate(settings))
        assert str(caught.value) == f"{name}: {bad} {problem}"
        # An error of decoding holds the whole file.
        assert not isinstance(caught.value.__context__, UnicodeDecodeError)


def test_parameters_that_do_not_fit_are_named(tmp_path: Path) -> None:
    with pytest.raises(KeyringError, match=r"^clusters.payments.password_encoder.brokers.2: A key length of 128"):
        keyring(tmp_path, {2: {"cipher_algorithm": "DES/CBC/PKCS5Padding"}}, secret="s")


def test_an_old_secret_needs_a_new_one(tmp_path: Path) -> None:
    for settings in ({"old_secret": "x"}, {"brokers": {1: {"old_secret": "x"}}}):
        with pytest.raises(ValidationError, match="old_secret_file is set without secret_file"):
            keyring(tmp_path, **settings)


def test_stored_values_are_compared(tmp_path: Path) -> None:
    cipher = KafkaCipher(keyring(tmp_path, secret="new", old_secret="old"))
    stored = PasswordEncoder("old").encode("s\u00e9cret")
    assert cipher.matches(0, KEY, stored, "s\u00e9cret")
    assert not cipher.matches(0, KEY, stored, "secret")
    assert not cipher.matches(0, KEY, stored, "\ud800")
    assert constant_time_equal("", "")
    assert not constant_time_equal("", "x")


def test_fingerprints_distinguish_values_keys_secrets_and_clusters() -> None:
    one, two = fingerprinter("secret", "payments"), fingerprinter("secret", "payments")
    fingerprint = one("k", "v")
    assert len(fingerprint) == 16
    assert int(fingerprint, 16) >= 0
    assert two("k", "v") == fingerprint
    others = [
        one("k", "w"),
        one("l", "v"),
        one("", "kv"),
        one("k", ""),
        one("k", "\ud800"),
        fingerprinter("secret2", "payments")("k", "v"),
        fingerprinter("secret", "orders")("k", "v"),
    ]
    assert len({fingerprint, *others}) == 8


def test_fingerprints_are_those_of_yesterday() -> None:
    """The trail keeps fingerprints, so a change of their making may not pass unnoticed."""
    assert fingerprinter("secret", "payments")("k", "v") == "a7e8e61f62e878ec"


def test_a_fingerprint_outlives_encodings_and_is_the_current_secret_s(tmp_path: Path) -> None:
    cipher = KafkaCipher(keyring(tmp_path, secret="new", old_secret="old"))
    values = [PasswordEncoder(secret).encode("x") for secret in ("new", "new", "old")]
    marks = {cipher.fingerprint(0, KEY, cipher.decode(0, KEY, stored)) for stored in values}
    assert marks == {BrokerSecrets.of("payments", "new").fingerprint(KEY, "x")}
