"""Secrets of webhooks: sealed for one webhook, and signatures as the documentation verifies them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from confplane.crypto import WebhookKey
from confplane.services.webhooks.secrets import WebhookSecrets, new_secret, seal, signature, unseal
from tests.support.processes import ROOT

KEY = "0123456789abcdef0123456789abcdef"
ONE, OTHER = UUID(int=1), UUID(int=2)
NOW = datetime.now(UTC)


def documented() -> Any:
    """The function of docs/webhooks.md."""
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/webhooks.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - of the documentation
    return names["verify"]


def headers(secrets: WebhookSecrets, body: bytes, at: datetime | None = None) -> dict[str, str]:
    at = at or datetime.now(UTC)  # the documented function reads the clock
    timestamp = int(at.timestamp())
    return {
        "webhook-id": "m",
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(secrets, "m", timestamp, body, at),
    }


def test_a_receiver_verifies_as_documented() -> None:
    verify, body = documented(), b'{"a": 1}'
    secrets = WebhookSecrets("https://a.example.com/", (new_secret(),))
    text = secrets.signing[0].text
    verify(text, headers(secrets, body), body)
    wrong = (
        (new_secret().text, headers(secrets, body), body),
        (text, headers(secrets, body), b"{}"),
        (text, {**headers(secrets, body), "webhook-id": "n"}, body),
        (text, headers(secrets, body, NOW - timedelta(hours=1)), body),
    )
    for each in wrong:
        with pytest.raises(ValueError, match=r"not valid|too old"):
            verify(*each)


def test_an_old_secret_signs_until_the_overlap_ends() -> None:
    old = WebhookSecrets("https://a.example.com/", (new_secret(),))
    rotated = old.rotated(NOW, NOW + timedelta(seconds=60))
    assert len(signature(rotated, "m", 1, b"", NOW + timedelta(seconds=59)).split(" ")) == 2
    assert len(signature(rotated, "m", 1, b"", NOW + timedelta(seconds=60)).split(" ")) == 1
    again = rotated.rotated(NOW, NOW + timedelta(seconds=60))
    assert len(again.signing) == 2, "no third secret is valid"
    assert len(old.rotated(NOW, NOW).signing) == 1


def test_secrets_are_opened_for_their_webhook_and_under_their_key_alone() -> None:
    key, secrets = WebhookKey(KEY), WebhookSecrets("https://a.example.com/planted", (new_secret(),))
    secrets = secrets.rotated(NOW, NOW + timedelta(days=1))
    sealed = seal(key, ONE, secrets)
    assert b"planted" not in sealed
    assert unseal(key, ONE, sealed) == secrets
    assert unseal(key, OTHER, sealed) is None
    assert unseal(WebhookKey(KEY[::-1]), ONE, sealed) is None
    assert "planted" not in repr(secrets)
