"""Commands over the API without a service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from confplane.cli.remote import session
from confplane.client import AsyncConfplane
from tests.unit.cli.answers import Recorded

if TYPE_CHECKING:
    from confplane.cli.remote.profiles import Profile


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Lets commands have the answers of ``answers``; changes succeed, and nothing is set."""
    recorded = Recorded(
        {
            "alter": {"entries": [{"warnings": []}]},
            "incrementalAlter": {"responses": [{"warnings": []}]},
            "client-quotas:describe": {"entries": [], "skipped": []},
            "client-configs:describe": {"entries": [], "skipped": []},
            "registrations": {"cleared": 1},
        }
    )
    monkeypatch.setenv("CONFPLANE_URL", "http://confplane.test")

    def client(profile: Profile) -> AsyncConfplane:
        return AsyncConfplane(profile.url, token=None, transport=httpx.MockTransport(recorded))

    monkeypatch.setattr(session, "client_of", client)
    return recorded
