"""Addresses, TLS and login of a Kafka cluster, from the settings. Files are read again for each connection."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import confplane
from confplane.client_tls import ssl_context
from confplane.kraft.wire.errors import KraftLoginError
from confplane.kraft.wire.options import Options
from confplane.kraft.wire.sasl import OAuthBearer, Plain, Scram
from confplane.settings import UnusableSettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.connection_settings import KafkaSaslSettings, KafkaSettings
    from confplane.kraft.wire.sasl import SaslLogin


def options_of(setting: str, settings: KafkaSettings) -> Options:
    """Return the options of all connections to a cluster.

    Args:
        setting: The name of the settings, for messages.
        settings: The settings.

    Raises:
        UnusableSettingsError: A file of TLS can't be used, or a file of the login can't be read.
    """
    tls, sasl = settings.tls, settings.sasl
    if tls is not None:
        try:
            ssl_context(tls)
        except (OSError, ValueError) as error:
            fault = error.strerror or error if isinstance(error, OSError) else error
            raise UnusableSettingsError(f"{setting}.tls: {fault}; compare its files") from None
    if sasl is not None:
        try:
            _login(setting, sasl)
        except KraftLoginError as error:
            raise UnusableSettingsError(str(error)) from None
    return Options(
        software_version=confplane.__version__,
        tls=None if tls is None else partial(ssl_context, tls),
        login=None if sasl is None else lambda: _login(setting, sasl),
    )


def _login(setting: str, settings: KafkaSaslSettings) -> SaslLogin:
    if settings.token_file is not None:
        file = settings.token_file
        _first_line(f"{setting}.sasl.token_file", file)
        return OAuthBearer(lambda: _first_line(f"{setting}.sasl.token_file", file))
    if settings.username is None or settings.password_file is None:
        raise AssertionError("the settings refuse a login without a name and a password")
    password = _first_line(f"{setting}.sasl.password_file", settings.password_file)
    if settings.mechanism == "PLAIN":
        return Plain(settings.username, password)
    return Scram(settings.username, password, settings.mechanism)


def _first_line(setting: str, file: Path) -> str:
    """Return the first line of a file with a secret.

    Raises:
        KraftLoginError: The file can't be read, or has no first line.
    """
    try:
        line = file.read_text(encoding="utf-8").partition("\n")[0].removesuffix("\r")
    except OSError as error:
        raise KraftLoginError(f"{setting}: {file} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise KraftLoginError(f"{setting}: {file} is not a text file") from None
    if not line:
        raise KraftLoginError(f"{setting}: the first line of {file} is empty")
    return line
