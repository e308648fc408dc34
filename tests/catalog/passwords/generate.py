"""Make ``kafka-3.9.json``: passwords encoded by Kafka's own class, with all that is needed to decode them.

One command, from the root of the repository, with a JDK and Maven on the path::

    python -m tests.catalog.passwords.generate

Maven fetches Kafka's server-common library, and ``Passwords.java`` runs its encoder. Salts and initialization vectors
are random, so each run makes other values; what must agree is what :func:`lasting` returns.
"""

from __future__ import annotations

import json
import sys
import tempfile
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

from tests.catalog import kafka_jars
from tests.catalog.kafka_jars import ToolError

KAFKA_VERSION: Final = "3.9.1"
FIXTURE: Final = Path(__file__).with_name("kafka-3.9.json")

_TIMEOUT_S: Final = 300


@dataclass(frozen=True, slots=True)
class Encoder:
    """A secret and the settings of a broker's encoder; an empty key factory leaves the choice to Kafka."""

    secret: str = "password-encoder-secret"
    key_factory: str = ""
    cipher: str = "AES/CBC/PKCS5Padding"
    key_length: int = 128
    iterations: int = 4096


@dataclass(frozen=True, slots=True)
class Sample:
    """A password and what Kafka made of it."""

    encoder: Encoder
    password: str
    stored: str


ENCODERS: Final = (
    Encoder(),
    *(Encoder(key_factory=f"PBKDF2WithHmacSHA{bits}", iterations=1024) for bits in ("1", "224", "256", "384", "512")),
    *(Encoder(cipher="AES/CBC/PKCS5Padding", key_length=bits, iterations=1024) for bits in (192, 256)),
    *(Encoder(cipher="AES/GCM/NoPadding", key_length=bits, iterations=1024) for bits in (128, 192, 256)),
    *(Encoder(cipher="AES/CFB/PKCS5Padding", key_length=bits, iterations=1024) for bits in (128, 192, 256)),
    *(Encoder(cipher="AES/OFB/PKCS5Padding", key_length=bits, iterations=1024) for bits in (128, 192, 256)),
    Encoder(cipher="DES/CBC/PKCS5Padding", key_length=64, iterations=1024),
    Encoder(cipher="DESede/CBC/PKCS5Padding", key_length=192, iterations=1024),
    Encoder(secret="gehei\u00dfnis \U0001f511, a:b", iterations=2000),
)
"""Every cipher, key factory and key length that ``confplane.crypto`` knows, and a secret that is not ASCII."""

PASSWORDS: Final = (
    "test-password",
    "",
    "p\U0001f600w-s\u00e9cret",
    "sixteen-letters!",
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b,c:d";',
)


def generate() -> list[Sample]:
    """Have Kafka encode each password by each encoder: the first password by all, the others by three.

    Raises:
        ToolError: Maven or Java is missing or fails.
    """
    wide = (ENCODERS[0], ENCODERS[8], ENCODERS[-1])
    pairs = [
        (encoder, password) for encoder in ENCODERS for password in (PASSWORDS if encoder in wide else PASSWORDS[:1])
    ]
    samples = []
    for (encoder, password), stored in zip(pairs, run("encode", pairs), strict=True):
        if stored is None:
            raise ToolError(f"Kafka refuses {encoder.cipher} or {encoder.key_factory}")
        samples.append(Sample(encoder, password, stored))
    return samples


def lasting(sample: Sample) -> tuple[Encoder, str, list[str]]:
    """Return all of a sample that does not change from run to run: the pairs, the random ones by name alone."""
    drawn = ("salt", "initializationVector", "encryptedPassword")
    pairs = [pair.partition(":") for pair in sample.stored.split(",")]
    return sample.encoder, sample.password, [name if name in drawn else f"{name}:{value}" for name, _, value in pairs]


def run(what: Literal["encode", "decode"], values: list[tuple[Encoder, str]]) -> list[str | None]:
    """Have Kafka encode passwords or decode stored values; None for each that it refuses.

    Raises:
        ToolError: Maven or Java is missing or fails, or Java's encoder is of another version.
    """
    orders = [
        "\t".join(
            [what, _base64(e.secret), e.key_factory, e.cipher, str(e.key_length), str(e.iterations), _base64(value)]
        )
        for e, value in values
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "orders")
        file.write_text("\n".join(orders))
        source = Path(__file__).with_name("Passwords.java")
        version, *answers = kafka_jars.run(
            "java", *kafka_jars.SHORT_LIVED, "-cp", _class_path(), str(source), str(file), timeout_s=_TIMEOUT_S
        ).splitlines()
    if version != KAFKA_VERSION or len(answers) != len(orders):
        raise ToolError(f"Kafka {version} gave {len(answers)} answers to {len(orders)} orders")
    return [
        b64decode(answer.removeprefix("ok\t")).decode() if answer.startswith("ok\t") else None for answer in answers
    ]


def read() -> list[Sample]:
    """Return the samples that are kept."""
    document = json.loads(FIXTURE.read_text())
    return [Sample(Encoder(**entry["encoder"]), entry["password"], entry["stored"]) for entry in document["samples"]]


def write(samples: list[Sample]) -> None:
    """Keep samples, one a line."""
    lines = ",\n".join(f"    {json.dumps(asdict(sample))}" for sample in samples)
    FIXTURE.write_text(f'{{\n  "kafka": "{KAFKA_VERSION}",\n  "samples": [\n{lines}\n  ]\n}}\n')


@cache
def _class_path() -> str:
    return kafka_jars.class_path("kafka-server-common", KAFKA_VERSION, timeout_s=_TIMEOUT_S)


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def main() -> None:
    """Write the file."""
    write(generate())
    sys.stdout.write(f"{FIXTURE} written\n")


if __name__ == "__main__":
    main()
