"""Certificates: their subjects as Java's ``X500Principal.getName()`` writes them, and the end of their validity.

Kafka makes principals from subjects.

Source: RFC 2253; sun.security.x509.AVA#toRFC2253String and RDN, X500Name of OpenJDK 17.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.x509 import InvalidVersion, load_der_x509_certificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def days_until_expiry(path: Path, now: datetime) -> float | None:
    """Return the days until the first certificate of a PEM file expires; None if the file has no certificate.

    Raises:
        OSError: The file can't be read.
    """
    data = path.read_bytes()
    if b"-----BEGIN CERTIFICATE-----" not in data:
        return None
    try:
        certificates = x509.load_pem_x509_certificates(data)
    except ValueError:
        return None
    earliest = min(each.not_valid_after_utc for each in certificates)
    return (earliest - now.astimezone(UTC)).total_seconds() / 86_400


_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Types with a name of their own; all other types are written as numbers, and their values in hexadecimal."""
_STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""Tags of texts: UTF-8, printable, T61, IA5, general, BMP; not universal."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SPACES: Final = " \r"
_VERSION: Final = 0xA0
_BEFORE_SUBJECT: Final = 4
"""Fields between version and subject: serial number, algorithm, issuer, validity."""
_LONG: Final = 0x80


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate.

    Args:
        certificate: The certificate in DER.

    Raises:
        ValueError: The bytes are not a certificate.
    """
    try:
        signed = load_der_x509_certificate(certificate).tbs_certificate_bytes
    except InvalidVersion as error:  # not a ValueError, although only damage causes such a version
        raise ValueError(str(error)) from None
    [(_, fields, _)] = _elements(signed)
    parts = [content for tag, content, _ in _elements(fields) if tag != _VERSION]
    names = [_relative_name(content) for _, content, _ in _elements(parts[_BEFORE_SUBJECT])]
    return ",".join(reversed(names))


def _relative_name(content: bytes) -> str:
    return "+".join(_attribute(pair) for _, pair, _ in _elements(content))


def _attribute(pair: bytes) -> str:
    (_, type_, _), (tag, value, whole) = _elements(pair)
    keyword = _KEYWORDS.get(_dotted(type_))
    if keyword is None:
        return f"{_dotted(type_)}=#{whole.hex()}"
    if tag not in _STRINGS:
        return f"{keyword}=#{whole.hex()}"
    return f"{keyword}={_escaped(value.decode(errors='replace'))}"


def _escaped(value: str) -> str:
    text = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in value)
    inner = text.strip(_SPACES)
    lead = len(text) - len(text.lstrip(_SPACES))
    before, after = text[:lead], text[lead + len(inner) :]
    return "".join(f"\\{each}" for each in before) + inner + "".join(f"\\{each}" for each in after)


def _dotted(content: bytes) -> str:
    """Return an object identifier in numbers (X.690, section 8.19)."""
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if byte < _LONG:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(str(each) for each in (first, numbers[0] - 40 * first, *numbers[1:]))


def _elements(content: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the tag, the content and the whole of each element of DER that is known to be well formed."""
    at = 0
    while at < len(content):
        begin, tag, length = at, content[at], content[at + 1]
        at += 2
        if length >= _LONG:
            octets = length - _LONG
            length = int.from_bytes(content[at : at + octets])
            at += octets
        at += length
        yield tag, content[at - length : at], content[begin:at]
