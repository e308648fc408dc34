"""TLS of the listener, with certificates and authorities that can be replaced at run time."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from confplane.client_tls import refuse_key_password
from confplane.settings import UnusableSettingsError

if TYPE_CHECKING:
    from confplane.identity_settings import TlsSettings

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_MODES: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class ListenerTls:
    """The TLS of new connections.

    The listener keeps one context, and each handshake uses the newest one. Open connections keep theirs.

    Args:
        settings: The settings.

    Raises:
        UnusableSettingsError: A file can't be used.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self.files = settings.files
        try:
            self.context = self._current = _context(settings)
        except (OSError, ValueError) as error:
            raise UnusableSettingsError(f"http.tls: {_fault(error)}; compare its files") from None
        self.context.sni_callback = self._choose

    def reload(self) -> None:
        """Read the files again.

        Raises:
            OSError: A file can't be used, and the earlier content remains in use.
            ValueError: The same.
        """
        self._current = _context(self._settings)

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        del name, context
        connection.context = self._current


def _context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.lowest]
    # A resumed session would let its client bypass authorities that were replaced since. TLS 1.2 also resumes without
    # tickets, which Python can't disable. So TLS 1.2 is not offered if clients have certificates.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.load_cert_chain(settings.certificate_file, settings.key_file, password=refuse_key_password)
    context.verify_mode = _MODES[settings.client_certificates]
    if settings.client_ca_file is not None:
        context.load_verify_locations(settings.client_ca_file)
    return context


def _fault(error: Exception) -> str:
    """Return the fault. OpenSSL's errors never contain the content of the files."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
