"""Changes of users, clients and ips: which keys of a command are quotas, which are client configs, and their values."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from app.domain.client_configs import SUPPORTED_CONFIGS
from app.domain.entities import EntityType
from app.domain.errors import InvalidRequestError
from app.domain.numbers import parse_java_double
from app.domain.quotas import ClientQuotas

if TYPE_CHECKING:
    from app.cli.remote.configs.arguments import Command

_WHOLE: Final = re.compile(r"[0-9]{1,19}")
"""Sent as an integer, which is exact above 2^53 too."""


@dataclass(frozen=True, slots=True)
class ClientChanges:
    """New values by key; None removes the key."""

    quotas: dict[str, float | None]
    configs: dict[str, str | None]
    registrations: bool
    """``--delete-config supported.configs``: clear what clients registered."""


def of_clients(command: Command) -> ClientChanges:
    """Sort the keys of a command.

    All keys that are no quotas count as client configs: the service knows which of them there are.

    Raises:
        InvalidRequestError: A quota is not a number, or an entity without a user has quotas alone.
    """
    entity = command.entity
    quotas: dict[str, float | None] = {}
    configs: dict[str, str | None] = {}
    values: dict[str, str | None] = {**command.added, **dict.fromkeys(command.deleted)}
    registrations = SUPPORTED_CONFIGS in command.deleted
    for key, value in values.items():
        if ClientQuotas().owns(entity, key):
            quotas[key] = None if value is None else _number(key, value)
        elif not (registrations and key == SUPPORTED_CONFIGS):
            configs[key] = value
    if (others := values.keys() - quotas.keys()) and EntityType.USER not in entity.types:
        raise InvalidRequestError(
            f"{', '.join(sorted(others))}: {command.types[0]} have quotas alone; client configs need a user"
        )
    return ClientChanges(quotas, configs, registrations)


def _number(key: str, text: str) -> float:
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        value = parse_java_double(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidRequestError(f"The value of {key} is not a number: {text!r}")
    return value
