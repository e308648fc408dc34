"""Passwords with known salts and initialization vectors, and what Kafka's class decodes them from."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass

from confplane.crypto.password_encoder import EncoderParameters, PasswordEncoder


@dataclass(frozen=True)
class Vector:
    secret: str
    password: str
    parameters: EncoderParameters
    salt: bytes
    iv: bytes
    stored: str

    def encoder(self) -> PasswordEncoder:
        """Return an encoder that draws this vector's salt and initialization vector, in that order."""
        drawn = iter((self.salt, self.iv))

        def random(size: int) -> bytes:
            data = next(drawn)
            assert len(data) == size
            return data

        return PasswordEncoder(self.secret, self.parameters, random=random)


def base64(data: bytes) -> str:
    return b64encode(data).decode()


VECTORS = [
    Vector(
        "password-encoder-secret",
        "test-password",
        EncoderParameters(),
        bytes(range(256)),
        bytes(range(16)),
        "initializationVector:AAECAwQFBgcICQoLDA0ODw==,keyLength:128,"
        f"salt:{base64(bytes(range(256)))},keyFactoryAlgorithm:PBKDF2WithHmacSHA512,"
        "cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:4096,passwordLength:13,"
        "encryptedPassword:D0xcfsKZoF6lva2IamCBnA==",
    ),
    Vector(
        "config-encoder-secret",
        "p\U0001f600w-s\u00e9cret",
        EncoderParameters(cipher="AES/GCM/NoPadding", key_length=256),
        b"\x42" * 256,
        bytes(range(12)),
        f"initializationVector:AAECAwQFBgcICQoL,keyLength:256,salt:{base64(bytes([0x42]) * 256)},"
        "keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/GCM/NoPadding,authenticationTagLength:128,"
        "iterations:4096,passwordLength:11,encryptedPassword:XQkuXgnCwvsSpHm33R1Jn8nI2dBCQFj0nlNI91I0",
    ),
    Vector(
        "encoder-secret",
        "secret2",
        EncoderParameters(key_factory="PBKDF2WithHmacSHA1", iterations=1024),
        b"\x01" * 256,
        b"\xff" * 16,
        f"initializationVector:{base64(bytes([0xFF]) * 16)},keyLength:128,salt:{base64(bytes([1]) * 256)},"
        "keyFactoryAlgorithm:PBKDF2WithHmacSHA1,cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:1024,passwordLength:7,"
        "encryptedPassword:ei3PYDeokecmrxNr+DbruA==",
    ),
]
