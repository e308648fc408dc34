"""TLS contexts of connections to other servers."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confplane.connection_settings import ClientTlsSettings


def ssl_context(settings: ClientTlsSettings) -> ssl.SSLContext:
    """Read the files, and return the context of one connection.

    Raises:
        OSError: A file can't be read, or is not a certificate or key.
        ValueError: The key is encrypted.
    """
    context = ssl.create_default_context(cafile=settings.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.verify_hostname
    if settings.certificate_file is not None:
        context.load_cert_chain(settings.certificate_file, settings.key_file, password=refuse_key_password)
    return context


def refuse_key_password() -> str:
    """Refuse to ask for the password of a key; without this, OpenSSL would ask at the terminal."""
    raise ValueError("the key is encrypted; give one that is not, in a file that nobody else can read")
