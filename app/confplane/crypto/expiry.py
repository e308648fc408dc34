"""The end of the validity of certificates in files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cryptography import x509

if TYPE_CHECKING:
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
