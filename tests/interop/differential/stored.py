"""Compares what both sides left in ZooKeeper."""

from __future__ import annotations

import json
from typing import Final

from confplane.crypto.password_encoder import PasswordEncoder
from confplane.domain.broker_keys import is_password
from tests.support.broker import ENCODER_SECRET

EMPTY: Final = b'{"version":1,"config":{}}'
_ENCODER: Final = PasswordEncoder(ENCODER_SECRET)


def config_of(data: bytes | None) -> dict[str, str] | None:
    """Read a znode as Kafka does; None where Kafka finds no config in it."""
    if not data:
        return {}
    try:
        value, _ = json.JSONDecoder().raw_decode(data.decode())
    except ValueError:
        return None
    config = value.get("config") if isinstance(value, dict) else None
    return config if isinstance(config, dict) else None


def same(path: str, theirs: bytes | None, ours: bytes | None) -> bool:
    """Say whether two znodes hold the same: to the byte, but for the order of keys and for the salts of passwords.

    An entity that is not there is as good as an empty one; see :func:`emptied`.
    """
    if (theirs or EMPTY) == (ours or EMPTY):
        return True
    their_config, our_config = config_of(theirs), config_of(ours)
    if their_config is None or our_config is None or theirs is None or ours is None:
        return False
    if path.startswith("brokers/"):
        return _plain(their_config) == _plain(our_config)
    return their_config == our_config and sorted(theirs) == sorted(ours)


def emptied(theirs: bytes | None, ours: bytes | None) -> bool:
    """Say whether Kafka deleted a node that Confplane keeps with an empty config."""
    return theirs is None and ours == EMPTY


def _plain(config: dict[str, str]) -> dict[str, str]:
    return {key: _ENCODER.decode(value) if is_password(key) else value for key, value in config.items()}
