"""A token that ends while a page is made: every page leads to the sign-in, and none takes it for nothing to show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from tests.console.own_front import CSRF, browser_of, refusing

if TYPE_CHECKING:
    from tests.support.service import Service

HOME = "/console/clusters/default"
QUOTAS = "/v1/clusters/default/client-quotas/user=ended"
EDIT = f"{HOME}/entities/user=ended/edit/client-quotas"
REVIEW = {"keys": '["request_percentage"]', "value request_percentage": "1"}


@pytest.fixture(scope="module")
def change(service: Service) -> str:
    """The id of the change that gave the entity of these tests its quota."""
    headers = {"Authorization": f"Bearer {service.token}"}
    body = {"quotas": {"request_percentage": 2}}
    made = httpx.put(service.url + QUOTAS, json=body, headers=headers, trust_env=False).raise_for_status()
    return str(made.headers["confplane-change-id"])


@pytest.mark.parametrize(
    ("page", "refused"),
    [
        ("/console/", "/v1/clusters"),
        (f"{HOME}/activity", "/v1/clusters/default/drift"),
        (f"{HOME}/entities", "/v1/clusters/default/configs"),
        (f"{HOME}/entities/user=ended", f"{QUOTAS}/history"),
        (f"{HOME}/entities/user=ended/clients", "/v1/clusters/default/client-configs/user=ended/status"),
        (f"{HOME}/entities/user=ended/access", "/v1/clusters/default/access"),
        (f"{HOME}/audit", "/v1/clusters/default/audit"),
        (f"{HOME}/audit/CHANGE", "/v1/clusters/default/audit"),
        (f"{HOME}/audit:revert?changeId=CHANGE", "/v1/clusters/default/audit:revert"),
        (f"{HOME}/access/who?group=Group:a", "/v1/clusters/default/access"),
        (f"{HOME}/access/tokens", "/v1/tokens"),
        (f"{HOME}/access/grants", "/v1/grants"),
    ],
)
async def test_a_page_leads_to_the_sign_in(service: Service, change: str, page: str, refused: str) -> None:
    page = page.replace("CHANGE", change)
    for ended in (False, True):
        api = refusing(service, lambda _, path, ended=ended: ended and path == refused)  # type: ignore[misc]
        async with browser_of(api, service.token) as browser:
            answer = await browser.get(page)
            assert answer.status_code == (303 if ended else 200), answer.text
    assert answer.headers["location"].startswith("/console/sign-in?return_to=" if page != "/console/" else "/console/")


@pytest.mark.parametrize(
    ("path", "form", "refused"),
    [
        (EDIT, {**REVIEW, "step": "review"}, f"{QUOTAS}/effective"),
        (EDIT, {**REVIEW, "step": "review"}, "/v1/clusters/default/registrations"),
        (EDIT, {**REVIEW, "step": "save"}, QUOTAS),
        (f"{HOME}/audit:revert", {"requestId": "none"}, "/v1/clusters/default/audit"),
        (f"{HOME}/access/tokens", {"step": "revoke", "id": "x"}, "/v1/tokens/x"),
        (f"{HOME}/access/grants", {"principal": "User:a"}, "/v1/grants"),
    ],
)
async def test_a_form_leads_to_the_sign_in(service: Service, path: str, form: dict[str, str], refused: str) -> None:
    api = refusing(service, lambda _, each: each == refused)
    async with browser_of(api, service.token) as browser:
        answer = await browser.post(path, data={"csrf": CSRF, **form})
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"].startswith("/console/sign-in")


@pytest.fixture
def token_id(service: Service) -> str:
    """The id of a new token."""
    headers = {"Authorization": f"Bearer {service.token}"}
    made = httpx.post(f"{service.url}/v1/tokens", json={"principal": "User:r"}, headers=headers, trust_env=False)
    return str(made.raise_for_status().json()["id"])


async def test_a_new_secret_is_shown_though_the_session_ended_with_the_old_one(service: Service, token_id: str) -> None:
    api = refusing(service, lambda method, path: method == "GET" and path == "/v1/tokens")
    async with browser_of(api, service.token) as browser:
        form = {"csrf": CSRF, "id": token_id, "step": "rotate", "overlap": "0"}
        rotated = await browser.post(f"{HOME}/access/tokens", data=form)
    assert rotated.status_code == 200
    assert "confplane_" in rotated.text
    assert "can't be listed now" in rotated.text
