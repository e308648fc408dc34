"""Encryption of archives: AES-256-GCM in chunks, so that any size is written and read in bounded memory.

The file begins with a line that names the format, and a random salt. HKDF-SHA256 derives the key of the archive from
the key file and the salt, so that no key is used for two archives. Each chunk has 64 KiB, except the last one, which
has fewer or none. Its nonce is its number, and it is authenticated as the last one or as another one. So chunks can't
be removed, repeated, exchanged or cut off without notice (the construction STREAM of Hoang, Reyhanitabar, Rogaway and
Vizár).
"""

from __future__ import annotations

import io
import secrets
from typing import IO, TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from confplane.crypto.sealing import MIN_LENGTH
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Buffer

MAGIC: Final = b"confplane-backup-aes256gcm-1\n"
_SALT_BYTES: Final = 32
_CHUNK: Final = 64 * 2**10
_TAG_BYTES: Final = 16
_NONCE_BYTES: Final = 12


def read_archive_key(path: Path) -> bytes:
    """Return the key of the first line of a file.

    Raises:
        InvalidRequestError: The file can't be read, or its first line is too short.
    """
    try:
        key = (path.read_text("utf-8").splitlines() or [""])[0].strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file in UTF-8"
        raise InvalidRequestError(f"--key-file: {path} can't be read: {reason}.") from None
    if len(key) < MIN_LENGTH:
        raise InvalidRequestError(
            f"--key-file: the first line of {path} has fewer than {MIN_LENGTH} characters. Make a key file with"
            " `openssl rand -base64 32`."
        )
    return key.encode()


class EncryptedWriter(io.RawIOBase):
    """Encrypts all bytes that are written to it. ``close()`` writes the last chunk, and leaves the file open.

    Args:
        file: The file.
        key: The key of the key file.
    """

    def __init__(self, file: IO[bytes], key: bytes) -> None:
        salt = secrets.token_bytes(_SALT_BYTES)
        self._file = file
        self._chunks = _Chunks(key, salt)
        self._waiting = bytearray()
        file.write(MAGIC + salt)

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Buffer) -> int:
        """Write bytes."""
        self._waiting += data
        while len(self._waiting) >= _CHUNK:
            self._file.write(self._chunks.seal(bytes(self._waiting[:_CHUNK]), last=False))
            del self._waiting[:_CHUNK]
        return memoryview(data).nbytes

    def close(self) -> None:
        """Write the last chunk."""
        if not self.closed:
            self._file.write(self._chunks.seal(bytes(self._waiting), last=True))
        super().close()


class DecryptedReader(io.RawIOBase):
    """Decrypts a file that :class:`EncryptedWriter` wrote.

    Args:
        file: The file, behind its :data:`MAGIC`.
        key: The key of the key file.
    """

    def __init__(self, file: IO[bytes], key: bytes) -> None:
        self._file = file
        self._chunks = _Chunks(key, file.read(_SALT_BYTES))
        self._plain = b""
        self._ended = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Read bytes.

        Raises:
            InvalidRequestError: The key is another one, or the file was changed or cut off.
        """
        while not self._plain and not self._ended:
            sealed = self._file.read(_CHUNK + _TAG_BYTES)
            # Only the last chunk is shorter.
            self._ended = len(sealed) < _CHUNK + _TAG_BYTES
            self._plain = self._chunks.open(sealed, last=self._ended)
        target = memoryview(buffer).cast("B")
        piece = self._plain[: len(target)]
        target[: len(piece)] = piece
        self._plain = self._plain[len(piece) :]
        return len(piece)


class _Chunks:
    """The chunks of one archive, in their order."""

    def __init__(self, key: bytes, salt: bytes) -> None:
        self._cipher = AESGCM(HKDF(SHA256(), 32, salt, b"confplane backup").derive(key))
        self._number = 0

    def seal(self, plain: bytes, *, last: bool) -> bytes:
        """Encrypt the next chunk."""
        return self._cipher.encrypt(self._nonce(), plain, b"last" if last else b"more")

    def open(self, sealed: bytes, *, last: bool) -> bytes:
        """Decrypt the next chunk.

        Raises:
            InvalidRequestError: The key is another one, or the chunk is not the next one.
        """
        try:
            return self._cipher.decrypt(self._nonce(), sealed, b"last" if last else b"more")
        except InvalidTag:
            raise InvalidRequestError(
                "The archive can't be decrypted: the key file is another one, or the archive was changed or cut off."
            ) from None

    def _nonce(self) -> bytes:
        self._number += 1
        return self._number.to_bytes(_NONCE_BYTES, "big")
