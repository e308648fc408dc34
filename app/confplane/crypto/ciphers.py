"""The ciphers and key factories that Kafka's password encoder can be set to, under Java's names.

The list is that of Kafka's own tests. A broker accepts any cipher of its Java runtime. Here any other name is refused
in the settings, and any other class in stored values. DES and triple DES are included because stored values may still
use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.decrepit.ciphers.modes import CFB, OFB
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC, GCM
from cryptography.hazmat.primitives.padding import PKCS7

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.hazmat.primitives.ciphers import BlockCipherAlgorithm

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
