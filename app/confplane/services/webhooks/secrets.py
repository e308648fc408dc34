"""The secrets of a subscription: its URL and its signing secrets, sealed under the key file.

Signatures are those of Standard Webhooks (https://github.com/standard-webhooks/standard-webhooks): HMAC-SHA256 of
id, timestamp and body, one signature for each secret that is valid.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from uuid import UUID

    from confplane.services.ports.webhooks import WebhookSealer

_PREFIX: Final = "whsec_"
_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class SigningSecret:
    """A signing secret in the form of Standard Webhooks."""

    text: str = field(repr=False)
    until: datetime | None = None
    """The end of a secret that was replaced."""


@dataclass(frozen=True, slots=True)
class WebhookSecrets:
    """The secrets of a subscription; the newest signing secret comes first."""

    url: str = field(repr=False)
    signing: tuple[SigningSecret, ...] = ()

    def rotated(self, now: datetime, until: datetime) -> WebhookSecrets:
        """Return the secrets with a new signing secret; the current one is valid until a time."""
        old = [replace(each, until=until) for each in self.signing[:1] if until > now]
        return replace(self, signing=(new_secret(), *old))


def new_secret() -> SigningSecret:
    """Return a new signing secret."""
    return SigningSecret(_PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode())


def seal(sealer: WebhookSealer, subscription_id: UUID, given: WebhookSecrets) -> bytes:
    """Return secrets sealed for a subscription: those of one are not valid for another."""
    signing = [{"text": each.text, "until": each.until} for each in given.signing]
    return sealer.seal(orjson.dumps({"url": given.url, "signing": signing}), _purpose(subscription_id))


def unseal(sealer: WebhookSealer, subscription_id: UUID, sealed: bytes) -> WebhookSecrets | None:
    """Return the secrets of a subscription; None if they were sealed under another key."""
    plain = sealer.open(sealed, _purpose(subscription_id))
    if plain is None:
        return None
    content = orjson.loads(plain)
    signing = [
        SigningSecret(each["text"], None if each["until"] is None else datetime.fromisoformat(each["until"]))
        for each in content["signing"]
    ]
    return WebhookSecrets(content["url"], tuple(signing))


def signature(given: WebhookSecrets, message_id: str, timestamp: int, body: bytes, now: datetime) -> str:
    """Return the header ``webhook-signature``: a signature by each valid secret."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    valid = (each for each in given.signing if each.until is None or each.until > now)
    return " ".join(f"v1,{base64.b64encode(_sign(each, signed)).decode()}" for each in valid)


def _sign(secret: SigningSecret, signed: bytes) -> bytes:
    return hmac.digest(base64.b64decode(secret.text.removeprefix(_PREFIX)), signed, "sha256")


def _purpose(subscription_id: UUID) -> str:
    return f"webhook {subscription_id}"
