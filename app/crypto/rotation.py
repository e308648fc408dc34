"""Replacing an encoder secret: what of a broker's stored map must be encoded anew, and the map that results.

Pure, and a function of what is stored now: what is already under the current secret is left as it is, so a rotation
that was killed is resumed by running it again, and one that is complete changes nothing. A broker does the same to its
own node when it starts with ``password.encoder.old.secret`` (DynamicBrokerConfig.scala), except that it writes in any
case.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.domain.errors import UndecodablePasswordError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from app.crypto.keyring import BrokerSecrets
    from app.crypto.password_encoder import PasswordEncoder


@dataclass(frozen=True, slots=True)
class Rotation:
    """The outcome for one broker's stored map. Its representation shows keys, never values."""

    config: dict[str, str] = field(repr=False)
    """The whole map to store: all other keys as they were, in their order."""
    reencoded: tuple[str, ...]
    """Keys that were under the old secret, or of a cipher that a broker with these parameters can't read."""
    current: tuple[str, ...]
    """Keys that already were under the current secret, untouched."""
    undecodable: tuple[str, ...]
    """Keys that no secret opens, untouched. Brokers ignore them too: they must be set anew."""

    @property
    def needed(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.reencoded)


def plan_rotation(stored: Mapping[str, str], encoded: Callable[[str], bool], secrets: BrokerSecrets) -> Rotation:
    """Encode anew, under the current secret, what is not under it yet.

    Args:
        stored: A broker's stored map.
        encoded: Whether a key's value is stored encoded.
        secrets: The broker's; without an old secret only unreadable ciphers are encoded anew.
    """
    config = dict(stored)
    reencoded, current, undecodable = [], [], []
    for key in sorted(filter(encoded, stored)):
        value = stored[key]
        plain = _plain(secrets.current, value)
        if plain is not None and secrets.current.readable(value):
            current.append(key)
            continue
        if plain is None and secrets.old is not None:
            plain = _plain(secrets.old, value)
        if plain is None:
            undecodable.append(key)
            continue
        config[key] = secrets.current.encode(plain)
        reencoded.append(key)
    return Rotation(config, tuple(reencoded), tuple(current), tuple(undecodable))


def _plain(encoder: PasswordEncoder, stored: str) -> str | None:
    try:
        return encoder.decode(stored)
    except UndecodablePasswordError:
        return None
