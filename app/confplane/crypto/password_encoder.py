"""Kafka's encoding of passwords in ZooKeeper: sensitive broker configs, encrypted under a broker's secret.

A stored password is a list of ``name:value`` pairs with everything except the secret: the derivation of the key
(PBKDF2, with its salt and iterations), the encryption of the password, and its length, which reveals a wrong secret. A
value is decoded by its own pairs, so the parameters may change while older values remain stored.

One thing depends on a broker's own settings: a broker set to a GCM cipher reads only values encrypted with GCM, and a
broker set to any other cipher can't read those (:meth:`PasswordEncoder.readable`).

Source: server-common/src/main/java/org/apache/kafka/security/EncryptingPasswordEncoder.java, its CipherParamsEncoders,
and server-common/src/main/java/org/apache/kafka/server/util/Csv.java.
"""

from __future__ import annotations

import hashlib
import os
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.decrepit.ciphers.modes import CFB, OFB
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC, GCM
from cryptography.hazmat.primitives.padding import PKCS7

from confplane.domain.errors import InvalidRequestError, UndecodablePasswordError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.hazmat.primitives.ciphers import BlockCipherAlgorithm


# The ciphers and key factories that Kafka's password encoder can be set to, under Java's names.
#
# The list is that of Kafka's own tests. A broker accepts any cipher of its Java runtime. Here any other name is refused
# in the settings, and any other class in stored values. DES and triple DES are included because stored values may still
# use them.

HASHES: Final = {
    "PBKDF2WithHmacSHA1": "sha1",
    "PBKDF2WithHmacSHA224": "sha224",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA384": "sha384",
    "PBKDF2WithHmacSHA512": "sha512",
}
"""Key factory -> the hash of its HMAC, by hashlib's name."""

TAG_BITS: Final = frozenset({96, 104, 112, 120, 128})
"""Lengths of GCM's tag that Java accepts. Kafka writes 128."""


def _des(key: bytes) -> TripleDES:
    """Return DES: triple DES with the same key three times."""
    return TripleDES(key * 3)


@dataclass(frozen=True, slots=True)
class BlockScheme:
    """A block cipher in a mode with an initialization vector of one block, padded as Java's PKCS5Padding does."""

    algorithm: Callable[[bytes], BlockCipherAlgorithm]
    mode: Callable[[bytes], CBC | CFB | OFB]
    key_sizes: frozenset[int]
    iv_size: int

    def seal(self, key: bytes, iv: bytes, plain: bytes) -> bytes:
        """Encrypt."""
        padder = PKCS7(self.iv_size * 8).padder()
        encryptor = Cipher(self.algorithm(key), self.mode(iv)).encryptor()
        return encryptor.update(padder.update(plain) + padder.finalize()) + encryptor.finalize()

    def open(self, key: bytes, iv: bytes, sealed: bytes) -> bytes:
        """Decrypt.

        Raises:
            ValueError: The sizes do not fit, or the padding is wrong.
        """
        decryptor = Cipher(self.algorithm(key), self.mode(iv)).decryptor()
        unpadder = PKCS7(self.iv_size * 8).unpadder()
        return unpadder.update(decryptor.update(sealed) + decryptor.finalize()) + unpadder.finalize()


@dataclass(frozen=True, slots=True)
class GcmScheme:
    """AES/GCM: the tag follows the cipher text."""

    key_sizes: frozenset[int]
    iv_size: int
    """Bytes of new initialization vectors, as in Java; a stored value may have another size."""
    tag_bits: int = 128

    def seal(self, key: bytes, iv: bytes, plain: bytes) -> bytes:
        """Encrypt, with a tag of ``tag_bits``."""
        encryptor = Cipher(AES(key), GCM(iv)).encryptor()
        sealed = encryptor.update(plain) + encryptor.finalize()
        return sealed + encryptor.tag

    def open(self, key: bytes, iv: bytes, sealed: bytes, tag_bits: int) -> bytes:
        """Decrypt.

        Raises:
            ValueError: The sizes do not fit.
            InvalidTag: The key is wrong, or the value was altered.
        """
        size = tag_bits // 8
        decryptor = Cipher(AES(key), GCM(iv, sealed[-size:], min_tag_length=size)).decryptor()
        return decryptor.update(sealed[:-size]) + decryptor.finalize()


_AES_KEYS: Final = frozenset({16, 24, 32})

SCHEMES: Final[dict[str, BlockScheme | GcmScheme]] = {
    "AES/CBC/PKCS5Padding": BlockScheme(AES, CBC, _AES_KEYS, 16),
    "AES/CFB/PKCS5Padding": BlockScheme(AES, CFB, _AES_KEYS, 16),
    "AES/OFB/PKCS5Padding": BlockScheme(AES, OFB, _AES_KEYS, 16),
    "AES/GCM/NoPadding": GcmScheme(_AES_KEYS, 12),
    "DES/CBC/PKCS5Padding": BlockScheme(_des, CBC, frozenset({8}), 8),
    "DESede/CBC/PKCS5Padding": BlockScheme(TripleDES, CBC, frozenset({24}), 8),
}


DEFAULT_KEY_FACTORY: Final = "PBKDF2WithHmacSHA512"
MIN_ITERATIONS: Final = 1024
"""Kafka's bound for ``password.encoder.iterations``."""
MAX_ITERATIONS: Final = 2_000_000
"""The bound for encoding and decoding here: a stored number must not occupy a thread for long."""

_SALT_BYTES: Final = 256
_MAX_STORED: Final = 1_048_576
"""Characters of the longest stored password: znodes are never larger."""
_CACHED_KEYS: Final = 4096
"""Derived keys cached per secret. They take a few MB, and are more than the passwords that a cluster's brokers usually
have under one secret."""
_SEPARATOR: Final = re.compile(r"\s*,\s*", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))
"""The characters that Java's ``trim`` removes."""
_SCHEMES_FOLDED: Final = {name.upper(): scheme for name, scheme in SCHEMES.items()}
_HASHES_FOLDED: Final = {name.upper(): name_of_hash for name, name_of_hash in HASHES.items()}

_NO_FORMAT: Final = "it does not have the form of an encoded password"
_NOT_SUPPORTED: Final = "its cipher, key factory, key length or iterations are not supported"
_NOT_OPENED: Final = "the secret does not open it, or it was altered"


@dataclass(frozen=True, slots=True)
class EncoderParameters:
    """Parameters for encoding new values: a broker's ``password.encoder.*`` settings, with Kafka's defaults.

    Raises:
        ValueError: A name is not known, the cipher does not support the key length, or the iterations are out of
            bounds.
    """

    key_factory: str = DEFAULT_KEY_FACTORY
    cipher: str = "AES/CBC/PKCS5Padding"
    key_length: int = 128
    """The length of the key in bits."""
    iterations: int = 4096

    def __post_init__(self) -> None:
        if self.key_factory not in HASHES:
            raise ValueError(f"The key factory algorithm is not one of {', '.join(HASHES)}")
        if self.cipher not in SCHEMES:
            raise ValueError(f"The cipher algorithm is not one of {', '.join(SCHEMES)}")
        lengths = [size * 8 for size in sorted(SCHEMES[self.cipher].key_sizes)]
        if self.key_length not in lengths:
            raise ValueError(f"A key length of {self.key_length} does not fit {self.cipher}, which has {lengths}")
        if not MIN_ITERATIONS <= self.iterations <= MAX_ITERATIONS:
            raise ValueError(f"The iterations are not within {MIN_ITERATIONS} and {MAX_ITERATIONS}")


class PasswordEncoder:
    """Encodes and decodes under one secret.

    Each new value, and the first decoding of each stored one, derives a key. This takes milliseconds of CPU time at
    Kafka's default of 4096 iterations, in proportion to the iterations. Call the methods in a worker thread; an encoder
    is safe to share. Derived keys are kept in memory, but passwords are not.

    The representation of an encoder does not show the secret, and an encoder can't be pickled.
    """

    __slots__ = ("_derive", "_random", "parameters")

    def __init__(
        self,
        secret: str,
        parameters: EncoderParameters | None = None,
        *,
        random: Callable[[int], bytes] = os.urandom,
        cached_keys: int = _CACHED_KEYS,
    ) -> None:
        """Initialize with a secret.

        Args:
            secret: Not empty; Java's strings and Python's agree in all secrets without unpaired surrogates.
            parameters: The parameters of new values; Kafka's defaults if None.
            random: Returns the given number of random bytes; called for the salt, then for the initialization vector.
            cached_keys: Number of derived keys that are kept.

        Raises:
            ValueError: The secret is empty or not Unicode text.
        """
        encoded = _utf8(secret)
        if not encoded:
            raise ValueError("The secret is empty or holds unpaired surrogates")
        self.parameters = parameters or EncoderParameters()
        self._random = random
        self._derive = _deriver(encoded, cached_keys)

    def encode(self, password: str) -> str:
        """Return the stored form of a password, which differs at each call.

        Raises:
            InvalidRequestError: The password holds unpaired surrogates, which Kafka would store as question marks.
        """
        plain = _utf8(password)
        if plain is None:
            raise InvalidRequestError("The value holds unpaired surrogates, which no encoding can keep")
        parameters = self.parameters
        scheme = SCHEMES[parameters.cipher]
        salt = self._random(_SALT_BYTES)
        iv = self._random(scheme.iv_size)
        key = self._derive(HASHES[parameters.key_factory], salt, parameters.iterations, parameters.key_length // 8)
        fields = {
            "initializationVector": _base64(iv),
            "keyLength": parameters.key_length,
            "salt": _base64(salt),
            "keyFactoryAlgorithm": parameters.key_factory,
            "cipherAlgorithm": parameters.cipher,
            **({"authenticationTagLength": scheme.tag_bits} if isinstance(scheme, GcmScheme) else {}),
            "iterations": parameters.iterations,
            "passwordLength": _utf16_units(password),
            "encryptedPassword": _base64(scheme.seal(key, iv, plain)),
        }
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, stored: str) -> str:
        """Return the password of a stored value.

        Values of ciphers without a tag (all except GCM) that were altered, or encoded under another secret, are
        detected by their padding, their length and their UTF-8; fewer than one in a million go unnoticed. Flipped bits
        in the initialization vector, or anywhere under CFB and OFB, may go unnoticed too, as in Kafka.

        Raises:
            UndecodablePasswordError: The value can't be decoded; neither the error nor its context contains any part of
                it.
        """
        try:
            return self._open(stored)
        except _RefusedError as refused:
            reason = refused.args[0]
        # Raised outside the handler: the caught error may refer to the value, and must not be the new error's context.
        raise UndecodablePasswordError(f"The stored password can't be decoded: {reason}")

    def readable(self, stored: str) -> bool:
        """Return True if a broker with these parameters can read a value of that cipher, under any secret."""
        try:
            scheme, _ = _scheme_of(_fields(stored))
        except _RefusedError:
            return False
        return isinstance(scheme, GcmScheme) == isinstance(SCHEMES[self.parameters.cipher], GcmScheme)

    def _open(self, stored: str) -> str:
        fields = _fields(stored)
        scheme, name_of_hash = _scheme_of(fields)
        key_length, iterations = _number(fields, "keyLength"), _number(fields, "iterations")
        length = _number(fields, "passwordLength")
        salt, iv, sealed = (_binary(fields, name) for name in ("salt", "initializationVector", "encryptedPassword"))
        if not salt or iterations < 1 or length < 0:
            _refuse(_NO_FORMAT)
        if iterations > MAX_ITERATIONS or key_length // 8 not in scheme.key_sizes:
            _refuse(_NOT_SUPPORTED)
        key = self._derive(name_of_hash, salt, iterations, key_length // 8)
        try:
            if isinstance(scheme, BlockScheme):
                plain = scheme.open(key, iv, sealed)
            else:
                tag_bits = _number(fields, "authenticationTagLength")
                plain = scheme.open(key, iv, sealed, tag_bits) if tag_bits in TAG_BITS else _refuse(_NOT_SUPPORTED)
            password = plain.decode()
        except (ValueError, InvalidTag):
            _refuse(_NOT_OPENED)
        # Strict UTF-8 where Kafka is lenient: Kafka writes nothing else, so other bytes mean a wrong secret.
        return password if _utf16_units(password) == length else _refuse(_NOT_OPENED)

    def __repr__(self) -> str:
        return f"PasswordEncoder({self.parameters})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A PasswordEncoder holds a secret and can't be pickled")


class _RefusedError(Exception):
    """A stored value can't be decoded; its only argument is one of the reasons above."""


def _refuse(reason: str) -> NoReturn:
    raise _RefusedError(reason)


def _deriver(secret: bytes, cached_keys: int) -> Callable[[str, bytes, int, int], bytes]:
    # A closure: the representation of a partial or a bound method would show the secret.
    @lru_cache(maxsize=cached_keys)
    def derive(name_of_hash: str, salt: bytes, iterations: int, size: int) -> bytes:
        return hashlib.pbkdf2_hmac(name_of_hash, secret, salt, iterations, size)

    return derive


def _fields(stored: str) -> dict[str, str]:
    """Read the pairs as Kafka does: split at commas, each at its last colon, without empty pairs at the end."""
    if len(stored) > _MAX_STORED:
        _refuse(_NO_FORMAT)
    pairs = _SEPARATOR.split(stored)
    while pairs and not pairs[-1]:
        pairs.pop()
    fields = {}
    for pair in pairs:
        name, colon, value = pair.rpartition(":")
        if not colon:
            _refuse(_NO_FORMAT)
        fields[name.strip(JAVA_BLANKS)] = value.strip(JAVA_BLANKS)
    return fields


def _scheme_of(fields: dict[str, str]) -> tuple[BlockScheme | GcmScheme, str]:
    """Return the cipher and the hash.

    Java accepts the names in any case, and uses the default for a missing key factory.
    """
    cipher = fields.get("cipherAlgorithm")
    if cipher is None:
        _refuse(_NO_FORMAT)
    scheme = _SCHEMES_FOLDED.get(cipher.upper())
    name_of_hash = _HASHES_FOLDED.get(fields.get("keyFactoryAlgorithm", DEFAULT_KEY_FACTORY).upper())
    if scheme is None or name_of_hash is None:
        _refuse(_NOT_SUPPORTED)
    return scheme, name_of_hash


def _number(fields: dict[str, str], name: str) -> int:
    text = fields.get(name, "")
    return int(text) if _NUMBER.fullmatch(text) else _refuse(_NO_FORMAT)


def _binary(fields: dict[str, str], name: str) -> bytes:
    text = fields.get(name)
    if text is None:
        _refuse(_NO_FORMAT)
    # Java's decoder accepts a text without any padding, too.
    padding = "" if "=" in text else "=" * (-len(text) % 4)
    try:
        return b64decode(text + padding, validate=True)
    except ValueError:
        _refuse(_NO_FORMAT)


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _utf8(text: str) -> bytes | None:
    """Encode a text, or return None for unpaired surrogates: Python's exception for them contains the whole text."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def _utf16_units(text: str) -> int:
    """Return the length of a string in UTF-16 units, as in Java."""
    return len(text) + sum(char > "\uffff" for char in text)
