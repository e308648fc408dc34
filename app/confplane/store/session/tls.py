"""TLS of the connections to ZooKeeper, and the certificate by which ZooKeeper knows this service."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING

from confplane.client_tls import ssl_context
from confplane.settings import UnusableSettingsError

if TYPE_CHECKING:
    import socket

    from confplane.connection_settings import ClientTlsSettings

logger = logging.getLogger(__name__)


class ZooKeeperTls:
    """The TLS of a cluster's ZooKeeper. The files are read for each connection, so that replaced ones come into use.

    Args:
        setting: The name of the settings, for messages.
        settings: The settings.

    Raises:
        UnusableSettingsError: A file can't be used.
    """

    def __init__(self, setting: str, settings: ClientTlsSettings) -> None:
        self._settings = settings
        self._last_logged_error = ""
        try:
            self._context = ssl_context(settings)
        except (OSError, ValueError) as error:
            fault = error.strerror or error if isinstance(error, OSError) else error
            raise UnusableSettingsError(f"{setting}: {fault}; compare its files") from None

    def wrap(self, raw: socket.socket, host: str) -> ssl.SSLSocket:
        """Return a connection after its handshake; ``host`` is the server's name in the settings.

        Raises:
            OSError: The handshake failed.
        """
        try:
            self._context = ssl_context(self._settings)
        except (OSError, ValueError) as error:
            logger.warning("the files of zookeeper_tls can't be used, earlier ones are: %s", type(error).__name__)
        try:
            return self._context.wrap_socket(raw, server_hostname=host)
        except ssl.SSLError as error:
            if str(error) != self._last_logged_error:  # a client without a connection tries again and again
                logger.warning("ZooKeeper's server %s is not spoken to: %s", host, error)
                self._last_logged_error = str(error)
            raise
