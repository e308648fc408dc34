"""Kafka's own encoder against ours: its values decode here, and ours decode there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from confplane.crypto.password_encoder import HASHES, SCHEMES, EncoderParameters, PasswordEncoder
from confplane.domain.errors import UndecodablePasswordError
from tests.catalog.kafka_jars import ToolError
from tests.catalog.passwords.generate import (
    ENCODERS,
    PASSWORDS,
    Encoder,
    Sample,
    generate,
    lasting,
    read,
    run,
)

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

SAMPLES = read()
CBC, GCM = ENCODERS[0], ENCODERS[8]


def ours(encoder: Encoder) -> PasswordEncoder:
    given: dict[str, Any] = {"key_factory": encoder.key_factory} if encoder.key_factory else {}
    parameters = EncoderParameters(
        cipher=encoder.cipher, key_length=encoder.key_length, iterations=encoder.iterations, **given
    )
    return PasswordEncoder(encoder.secret, parameters)


def by_kafka(call: Callable[..., T], *arguments: Any) -> T:
    try:
        return call(*arguments)
    except ToolError as error:
        if os.environ.get("CONFPLANE_REQUIRE_INTEROP") == "1":
            raise
        pytest.skip(f"Kafka's classes can't be run here: {error}")


def label(sample: Sample) -> str:
    encoder = sample.encoder
    return f"{encoder.cipher}-{encoder.key_length}-{encoder.key_factory or 'default'}-{len(sample.password)}"


def test_the_samples_have_every_cipher_key_length_and_key_factory() -> None:
    assert {(e.cipher, e.key_length // 8) for e in ENCODERS} == {
        (name, size) for name, scheme in SCHEMES.items() for size in scheme.key_sizes
    }
    assert {e.key_factory for e in ENCODERS} == {"", *HASHES}
    assert {sample.encoder for sample in SAMPLES} == set(ENCODERS)
    assert {sample.password for sample in SAMPLES} == set(PASSWORDS)


@pytest.mark.parametrize("sample", SAMPLES, ids=label)
def test_what_kafka_encoded_decodes(sample: Sample) -> None:
    # The value says itself how it was made: Kafka's defaults here, whatever the settings there.
    assert PasswordEncoder(sample.encoder.secret).decode(sample.stored) == sample.password
    with pytest.raises(UndecodablePasswordError):
        PasswordEncoder("another secret").decode(sample.stored)


@pytest.mark.parametrize("sample", SAMPLES, ids=label)
def test_what_is_encoded_here_has_kafka_s_form(sample: Sample) -> None:
    stored = ours(sample.encoder).encode(sample.password)
    assert lasting(Sample(sample.encoder, sample.password, stored)) == lasting(sample)
    assert len(stored) == len(sample.stored)


@pytest.mark.interop
def test_the_samples_are_what_kafka_s_class_makes() -> None:
    assert [lasting(sample) for sample in by_kafka(generate)] == [lasting(sample) for sample in SAMPLES]


@pytest.mark.interop
def test_kafka_decodes_what_is_encoded_here() -> None:
    values = [(encoder, password) for encoder in ENCODERS for password in PASSWORDS]
    stored = [(encoder, ours(encoder).encode(password)) for encoder, password in values]
    assert by_kafka(run, "decode", stored) == [password for _, password in values]


@pytest.mark.interop
def test_kafka_reads_and_refuses_what_we_say_it_does() -> None:
    cbc, gcm = (ours(encoder).encode("x") for encoder in (CBC, GCM))
    # Java takes these liberties, and so do we.
    loose = cbc.replace("AES/CBC/PKCS5Padding", "aes/cbc/pkcs5padding").replace(
        ",keyLength:", " ,other:a:b, keyLength: +"
    )
    bare = ",".join(pair.rstrip("=") for pair in cbc.split(",") if "keyFactory" not in pair) + ",,"
    altered = [
        loose,
        bare,
        cbc.replace("iterations:4096", "iterations:4097"),
        cbc.replace("passwordLength:1", "passwordLength:2"),
        cbc.replace("keyLength:128", "keyLength:"),
        cbc.replace("keyLength:128", "keyLength"),
        cbc.replace("keyLength:128", "keyLength:1_28"),
        cbc.replace("salt:", "salt:*"),
        f",{cbc}",
        gcm.replace("authenticationTagLength:128", "authenticationTagLength:120"),
        "",
        "x",
    ]
    orders = [(CBC, cbc), (CBC, gcm), (GCM, cbc), (GCM, gcm)]
    orders += [(GCM if "GCM" in stored else CBC, stored) for stored in altered]
    theirs = by_kafka(run, "decode", orders)

    def decoded(encoder: Encoder, stored: str) -> str | None:
        reader = ours(encoder)
        try:
            return reader.decode(stored) if reader.readable(stored) else None
        except UndecodablePasswordError:
            return None

    assert [decoded(encoder, stored) for encoder, stored in orders] == theirs
    assert theirs == ["x", None, None, "x", "x", "x", *[None] * 10]
