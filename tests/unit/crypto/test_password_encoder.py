from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confplane.crypto.password_encoder import HASHES, MAX_ITERATIONS, SCHEMES, EncoderParameters, PasswordEncoder
from confplane.domain.errors import InvalidRequestError, UndecodablePasswordError
from tests.unit.crypto.vectors import VECTORS, Vector, base64

FAST = EncoderParameters(iterations=1024)
GCM = EncoderParameters(cipher="AES/GCM/NoPadding", iterations=1024)
EVERY = [
    EncoderParameters(cipher=name, key_length=size * 8, iterations=1024)
    for name, scheme in SCHEMES.items()
    for size in sorted(scheme.key_sizes)
] + [EncoderParameters(key_factory=name, iterations=1024) for name in HASHES]

REFUSALS = [
    f"The stored password can't be decoded: {reason}"
    for reason in (
        "it does not have the form of an encoded password",
        "its cipher, key factory, key length or iterations are not supported",
        "the secret does not open it, or it was altered",
    )
]

passwords = st.text(st.characters(exclude_categories=["Cs"]), max_size=80) | st.text("a\u00e9\U0001f600", max_size=40)


def fields(stored: str) -> dict[str, str]:
    return dict(pair.split(":", 1) for pair in stored.split(","))


def joined(pairs: dict[str, str]) -> str:
    return ",".join(f"{name}:{value}" for name, value in pairs.items())


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.password)
def test_vectors_both_ways(vector: Vector) -> None:
    assert vector.encoder().encode(vector.password) == vector.stored
    assert PasswordEncoder(vector.secret).decode(vector.stored) == vector.password


@pytest.mark.parametrize("parameters", EVERY, ids=str)
def test_every_cipher_and_key_factory_goes_both_ways(parameters: EncoderParameters) -> None:
    encoder = PasswordEncoder("a secret", parameters)
    for password in ("", "x", "sixteen-letters!", "p\U0001f600w-s\u00e9cret", "x" * 1000):
        stored = encoder.encode(password)
        # The value says how it was made, so settings that have changed since play no part.
        assert PasswordEncoder("a secret", FAST).decode(stored) == password
        written = fields(stored)
        assert (written["cipherAlgorithm"], written["keyFactoryAlgorithm"]) == (
            parameters.cipher,
            parameters.key_factory,
        )
        assert (written["keyLength"], written["iterations"]) == (str(parameters.key_length), "1024")


@given(passwords)
@settings(max_examples=200)
def test_any_password_survives(password: str) -> None:
    stored = ENCODER.encode(password)
    assert ENCODER.decode(stored) == password
    written = fields(stored)
    assert int(written["passwordLength"]) == len(password.encode("utf-16-le")) // 2
    assert len(b64decode(written["salt"])) == 256


ENCODER = PasswordEncoder("g\u00e9heim \U0001f511", FAST)
SEALED = PasswordEncoder("a secret", GCM)


def test_no_two_encodings_share_their_randomness() -> None:
    stored = [fields(ENCODER.encode("x")) for _ in range(20)]
    for name in ("salt", "initializationVector", "encryptedPassword"):
        assert len({each[name] for each in stored}) == 20


@given(
    st.sampled_from(["salt", "initializationVector", "encryptedPassword"]),
    st.integers(0, 2**12),
    st.integers(0, 7),
    passwords,
)
@settings(max_examples=100)
def test_no_flipped_bit_goes_unnoticed_under_gcm(name: str, position: int, bit: int, password: str) -> None:
    pairs = fields(SEALED.encode(password))
    data = bytearray(b64decode(pairs[name]))
    data[position % len(data)] ^= 1 << bit
    refused(SEALED, joined(pairs | {name: base64(bytes(data))}))


@pytest.mark.parametrize("parameters", EVERY, ids=str)
def test_another_secret_opens_nothing(parameters: EncoderParameters) -> None:
    stored = PasswordEncoder("a secret", parameters).encode("a password of some length")
    refused(PasswordEncoder("another secret", parameters), stored)


CHANGES: list[dict[str, Any]] = [
    {"keyLength": None},
    {"keyLength": ""},
    {"keyLength": "x"},
    {"keyLength": "1e2"},
    {"keyLength": "1_28"},
    {"keyLength": "\u0661\u0662\u0668"},
    {"keyLength": "0"},
    {"keyLength": "-128"},
    {"keyLength": "64"},
    {"keyLength": "256"},
    {"keyLength": "99999999999999999999"},
    {"salt": None},
    {"salt": ""},
    {"salt": "*"},
    {"salt": "A"},
    {"salt": "AAAA"},
    {"salt": "\u00e9"},
    {"salt": "\ud800"},
    {"iterations": None},
    {"iterations": "0"},
    {"iterations": "-1"},
    {"iterations": "1025"},
    {"iterations": str(MAX_ITERATIONS + 1)},
    {"iterations": "2147483647"},
    {"passwordLength": None},
    {"passwordLength": "-1"},
    {"passwordLength": "0"},
    {"passwordLength": "9"},
    {"encryptedPassword": None},
    {"encryptedPassword": ""},
    {"encryptedPassword": "AAAA"},
    {"encryptedPassword": base64(bytes(16))},
    {"initializationVector": None},
    {"initializationVector": ""},
    {"initializationVector": "AAAA"},
    {"initializationVector": base64(bytes(200))},
    {"cipherAlgorithm": None},
    {"cipherAlgorithm": ""},
    {"cipherAlgorithm": "AES/ECB/PKCS5Padding"},
    {"cipherAlgorithm": "AES/GCM/NoPadding"},
    {"cipherAlgorithm": "DES/CBC/PKCS5Padding"},
    {"keyFactoryAlgorithm": ""},
    {"keyFactoryAlgorithm": "PBKDF2WithHmacMD5"},
    {"keyFactoryAlgorithm": "PBKDF2WithHmacSHA256"},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_an_altered_value_is_refused(change: dict[str, str | None]) -> None:
    pairs = {**fields(ENCODER.encode("password")), **change}
    refused(ENCODER, joined({name: value for name, value in pairs.items() if value is not None}))


@pytest.mark.parametrize("tag", [None, "", "0", "8", "64", "129", "256", "-128"])
def test_a_tag_of_another_length_is_refused(tag: str | None) -> None:
    pairs: dict[str, str | None] = {**fields(SEALED.encode("password")), "authenticationTagLength": tag}
    refused(SEALED, joined({name: value for name, value in pairs.items() if value is not None}))


@pytest.mark.parametrize(
    "stored", ["", " ", ",", ":", "x", "hunter2", "a:b", "\U0001f600", "x:" * 9, "\0", "a:b," * 300_000, "\ud800"]
)
def test_what_is_no_encoded_password_is_refused(stored: str) -> None:
    refused(ENCODER, stored)


@given(st.text(max_size=60))
@settings(max_examples=200)
def test_no_text_raises_anything_else(stored: str) -> None:
    refused(ENCODER, stored)


def refused(encoder: PasswordEncoder, stored: str) -> None:
    with pytest.raises(UndecodablePasswordError) as caught:
        encoder.decode(stored)
    # What was caught on the way holds parts of the value, and is gone.
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    # One of three sentences, so no part of the value.
    assert caught.value.detail in REFUSALS


def test_the_order_of_pairs_further_pairs_and_blanks_play_no_part() -> None:
    stored = ENCODER.encode("password")
    pairs = stored.split(",")
    assert ENCODER.decode(" ,\t".join(reversed(pairs))) == "password"
    assert ENCODER.decode(f"other:1,{stored},more:x:y") == "password"
    assert ENCODER.decode(stored.replace("keyLength:128", "keyLength : +128 ")) == "password"
    assert ENCODER.decode(f"{stored},,,") == "password"
    assert ENCODER.decode(stored.replace("=", "")) == "password"


def test_names_are_taken_in_any_case_and_the_key_factory_has_a_default() -> None:
    pairs = fields(ENCODER.encode("password"))
    assert (
        ENCODER.decode(
            joined(
                {
                    name: value if ":" in name or "Algorithm" not in name else value.lower()
                    for name, value in pairs.items()
                }
            )
        )
        == "password"
    )
    del pairs["keyFactoryAlgorithm"]
    assert ENCODER.decode(joined(pairs)) == "password"


def test_a_broker_reads_values_of_its_own_kind_of_cipher() -> None:
    cbc, gcm = ENCODER.encode("x"), SEALED.encode("x")
    assert ENCODER.readable(cbc)
    assert not ENCODER.readable(gcm)
    assert SEALED.readable(gcm)
    assert not SEALED.readable(cbc)
    cfb = EncoderParameters(cipher="AES/CFB/PKCS5Padding", iterations=1024)
    assert PasswordEncoder("x", cfb).readable(cbc)
    assert not ENCODER.readable("no such thing")


def test_what_is_not_unicode_is_refused_without_being_kept() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        ENCODER.encode("planted\ud800")
    assert caught.value.__context__ is None
    assert "planted" not in str(caught.value)
    for secret in ("", "planted\ud800"):
        with pytest.raises(ValueError, match="empty or holds") as wrong:
            PasswordEncoder(secret)
        assert wrong.value.__context__ is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cipher": "AES/ECB/PKCS5Padding"}, "cipher algorithm is not one of"),
        ({"cipher": "aes/cbc/pkcs5padding"}, "cipher algorithm is not one of"),
        ({"key_factory": "PBKDF2"}, "key factory algorithm is not one of"),
        ({"key_length": 64}, "key length of 64 does not fit AES/CBC"),
        ({"cipher": "DES/CBC/PKCS5Padding"}, "key length of 128 does not fit DES/CBC"),
        ({"iterations": 1023}, "iterations are not within"),
        ({"iterations": MAX_ITERATIONS + 1}, "iterations are not within"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EncoderParameters(**given)


def test_a_key_is_derived_once_and_not_all_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[bytes] = []

    def derive(_: str, secret: bytes, salt: bytes, iterations: int, size: int) -> bytes:
        del secret, iterations
        derived.append(salt)
        return salt[:size]

    monkeypatch.setattr("confplane.crypto.password_encoder.hashlib.pbkdf2_hmac", derive)
    encoder = PasswordEncoder("x", cached_keys=2)
    stored = [encoder.encode(password) for password in "abc"]
    assert len(derived) == 3
    assert [encoder.decode(value) for value in reversed(stored[1:])] == ["c", "b"]
    assert len(derived) == 3
    assert encoder.decode(stored[0]) == "a"
    assert len(derived) == 4
