"""The encoder secrets of one cluster's brokers, from files that the settings name.

Every broker may have a ``password.encoder.secret`` of its own (KIP-226); the cluster's is the fallback. While an old
secret is set in addition to the current one, both decode, and new values are encoded under the current one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confplane.crypto.fingerprints import fingerprinter
from confplane.crypto.password_encoder import JAVA_BLANKS, EncoderParameters, PasswordEncoder
from confplane.domain.errors import EncoderSecretMissingError
from confplane.settings import UnusableSettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from confplane.settings import BrokerEncoderSettings, PasswordEncoderSettings


class KeyringError(UnusableSettingsError):
    """The settings of the encoders can't be used; the message names the setting and holds no secret."""


@dataclass(frozen=True, slots=True)
class BrokerSecrets:
    """The encoders of one broker's passwords."""

    current: PasswordEncoder
    old: PasswordEncoder | None
    """The encoder of the old secret, used only for decoding while a secret is being replaced."""
    fingerprint: Callable[[str, str], str] = field(repr=False)
    """A function from (config key, value) to the fingerprint under the current secret."""

    @classmethod
    def of(
        cls, cluster: str, secret: str, *, old: str | None = None, parameters: EncoderParameters | None = None
    ) -> BrokerSecrets:
        """Build the encoders from the secrets themselves.

        Raises:
            ValueError: A secret is empty or not Unicode text.
        """
        return cls(
            current=PasswordEncoder(secret, parameters),
            old=None if old is None else PasswordEncoder(old, parameters),
            fingerprint=fingerprinter(secret, cluster),
        )


class Keyring:
    """The secrets of one cluster, by broker. Its representation names brokers only."""

    def __init__(
        self, cluster: str, fallback: BrokerSecrets | None = None, brokers: Mapping[int, BrokerSecrets] | None = None
    ) -> None:
        self.cluster = cluster
        self._fallback = fallback
        self._brokers = dict(brokers or {})

    @classmethod
    def from_settings(cls, cluster: str, settings: PasswordEncoderSettings | None) -> Keyring:
        """Read the files that a cluster's settings name, once.

        Raises:
            KeyringError: A file can't be read or holds no secret, or the parameters are not valid together.
        """
        setting = f"clusters.{cluster}.password_encoder"
        if settings is None:
            return cls(cluster)
        brokers = {
            broker_id: secrets
            for broker_id, own in sorted(settings.brokers.items())
            if (secrets := _read(cluster, settings.for_broker(broker_id), f"{setting}.brokers.{broker_id}", own))
        }
        return cls(cluster, _read(cluster, settings, setting, settings), brokers)

    def knows(self, broker_id: int | None) -> bool:
        """Return True if :meth:`secret_for` returns secrets."""
        return self._find(broker_id) is not None

    def secret_for(self, broker_id: int | None) -> BrokerSecrets:
        """Return a broker's secrets, or the cluster's fallback for None.

        Raises:
            EncoderSecretMissingError: No secret is set; the message names the setting.
        """
        found = self._find(broker_id)
        if found is None:
            setting = f"clusters.{self.cluster}.password_encoder"
            whose = "This cluster" if broker_id is None else f"Broker {broker_id}"
            one_broker = "" if broker_id is None else f", or in {setting}.brokers.{broker_id}.secret_file"
            raise EncoderSecretMissingError(
                f"{whose} has no password encoder secret here, so sensitive configs can be neither read nor written: "
                f"name a file that holds the brokers' password.encoder.secret in the setting "
                f"{setting}.secret_file{one_broker}"
            )
        return found

    def _find(self, broker_id: int | None) -> BrokerSecrets | None:
        return self._fallback if broker_id is None else self._brokers.get(broker_id, self._fallback)

    def __repr__(self) -> str:
        return f"Keyring({self.cluster!r}, fallback={self._fallback is not None}, brokers={sorted(self._brokers)})"


def _read(
    cluster: str, settings: BrokerEncoderSettings, setting: str, own: BrokerEncoderSettings
) -> BrokerSecrets | None:
    """Build the secrets of resolved settings; messages name the settings ``own``."""
    if settings.secret_file is None:
        return None
    secret = _secret(settings.secret_file, f"{setting}.secret_file" if own.secret_file else setting)
    old = None
    if settings.old_secret_file is not None:
        old = _secret(settings.old_secret_file, f"{setting}.old_secret_file" if own.old_secret_file else setting)
    chosen = {
        "key_factory": settings.keyfactory_algorithm,
        "cipher": settings.cipher_algorithm,
        "key_length": settings.key_length,
        "iterations": settings.iterations,
    }
    try:
        parameters = EncoderParameters(**{name: value for name, value in chosen.items() if value is not None})  # type: ignore[arg-type]  # each has its field's type
    except ValueError as error:
        raise KeyringError(f"{setting}: {error}") from None
    return BrokerSecrets.of(cluster, secret, old=old, parameters=parameters)


def _secret(path: Path, setting: str) -> str:
    """Read a secret, trimmed as Kafka trims it."""
    problem = None
    try:
        # Editors of some systems begin a file with a byte order mark.
        secret = path.read_text("utf-8-sig").strip(JAVA_BLANKS)
    except OSError as error:
        problem = f"can't be read: {error.strerror}"
    except UnicodeDecodeError:
        # Raised below, outside the handler, so that an exception with the file's content is not its context.
        problem = "is not a text file in UTF-8"
    else:
        if not secret:
            problem = "is empty"
        elif "\n" in secret or "\r" in secret:
            problem = "has several lines; it must hold the secret alone"
    if problem is not None:
        raise KeyringError(f"{setting}: {path} {problem}")
    return secret
