"""Pages of change requests in states that a review does not pass through: accessible, and fit for 400 pixels."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self

import httpx
import pytest
from playwright.sync_api import expect

from confplane.domain.texts import rfc3339
from tests.browser.tab import Tab
from tests.browser.test_change_requests import service_options
from tests.support.reviewers import PROPOSES, REVIEWS, token_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.support.service import Service

__all__ = ["service_options"]

REQUESTS: Final = "/v1/clusters/default/change-requests"
PASSWORD: Final = "listener.name.internal.ssl.key.password"


class RequestClient:
    """An author or a reviewer over the API."""

    def __init__(self, service: Service, token: str) -> None:
        self._client = httpx.Client(
            base_url=service.url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=60
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def send(self, path: str, **body: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._client.post(f"{REQUESTS}{path}", json=body).raise_for_status().json()
        return found

    def propose(self, name: str, **more: Any) -> dict[str, Any]:
        """Propose another rate of a user."""
        edit = {
            "facet": "client-quotas",
            "id": f"user=ruled-{name}",
            "ops": [{"key": "producer_byte_rate", "value": 9}],
        }
        return self.send("", edits=[edit], **more)


def test_requests_in_every_state_are_accessible_and_fit(browser: Browser, service: Service) -> None:
    author_token = token_of(service, "author", (*PROPOSES, *REVIEWS))
    with (
        RequestClient(service, author_token) as author,
        RequestClient(service, token_of(service, "reviewer", REVIEWS)) as reviewer,
    ):

        def approved(request: dict[str, Any]) -> dict[str, Any]:
            return reviewer.send(f"/{request['id']}:approve", digest=request["digest"])

        tomorrow = rfc3339((datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0))
        secret = {"facet": "configs", "id": "broker=7", "ops": [{"key": PASSWORD, "value": "planted"}]}
        entities = [{"id": f"user=ruled-m{number}", "quotas": {"producer_byte_rate": 5}} for number in range(3)]
        manifest = {"apiVersion": "confplane/v1", "kind": "Configs", "entities": entities}
        moved, other = author.propose("moved"), author.propose("moved")
        author.send(f"/{approved(other)['id']}:apply")
        shown = {
            "draft": author.propose("draft", draft=True)["id"],
            "scheduled": approved(author.propose("later", applyAt=tomorrow))["id"],
            "approved": approved(author.send("", edits=[secret]))["id"],
            "rejected": reviewer.send(f"/{author.propose('no')['id']}:reject", comment="not now")["id"],
            "open": author.send("", manifest=manifest)["id"],
        }
        with pytest.raises(httpx.HTTPStatusError, match="409"):
            approved(moved)
    with Tab(browser, service) as tab:
        tab.sign_in(author_token)
        for state, request in shown.items():
            tab.open(f"/console/clusters/default/requests/{request}")
            expect(tab.page.locator(".head")).to_contain_text(state)
            tab.check()
        tab.open(f"/console/clusters/default/requests/{moved['id']}")
        expect(tab.page.locator("main")).to_contain_text("open again")
        tab.check()
        tab.open("/console/clusters/default/requests")
        tab.check()
        tab.open(f"/console/clusters/default/requests/{shown['approved']}")
        tab.type(f"{PASSWORD} of broker 7", "planted")
        tab.press("button", "Apply", exact=True)
        expect(tab.page.locator(".head")).to_contain_text("applied")
        tab.check()
    assert tab.faults == []
