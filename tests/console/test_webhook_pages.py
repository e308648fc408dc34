"""The pages of webhooks: created, tested, changed, handed over and removed, with secrets shown once or never."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.console.own_front import CSRF, browser_of, refusing
from tests.console.visitor import Visitor, text_of
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from tests.console.api import Api
    from tests.support.service import Service

HOME = "/console/clusters/default"
HOOKS = f"{HOME}/webhooks"
PLANTED = "planted-path-77af"
URL = f"http://127.0.0.1:1/{PLANTED}?token={PLANTED}"
MARKUP = "<img src=x onerror=alert(1)>"
SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]+")


@pytest.fixture(scope="module")
def service_options(console_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The module's service has a console and webhooks."""
    return {"settings": console_settings | webhook_settings(tmp_path_factory.mktemp("webhooks"))}


def webhook_settings(directory: Path) -> dict[str, str]:
    """Return the variables of a service with webhooks to loopback."""
    key_file = directory / "webhooks-key"
    key_file.write_text("a key of webhooks for tests, of no other use")
    return {"CONFPLANE_WEBHOOKS__KEY_FILE": str(key_file), "CONFPLANE_WEBHOOKS__INSECURE_HTTP": "true"}


def step(visitor: Visitor, name: str, step_name: str, **form: str) -> httpx.Response:
    """Send a form of a webhook's page."""
    return visitor.post(f"{HOOKS}/{name}", {"step": step_name, **form}, page=f"{HOOKS}/{name}")


def etag_of(visitor: Visitor, name: str) -> str:
    """Return the ETag that a form of the page has."""
    found = re.search(r'name="etag" value="([^"]+)"', visitor.page(f"{HOOKS}/{name}"))
    assert found is not None
    return html.unescape(found[1])


def created(visitor: Visitor, name: str, **form: str) -> httpx.Response:
    """Create a webhook on the page."""
    return visitor.post(HOOKS, {"name": name, "url": URL, **form}, page=HOOKS)


def test_a_webhook_is_created_changed_and_removed(visitor: Visitor, api: Api) -> None:
    made = created(visitor, "made", entityType="topic", note=MARKUP, reason="for a test")
    [secret] = SECRET.findall(made.text)
    pages = [visitor.page(HOOKS), visitor.page(f"{HOOKS}/made")]
    for page in (made.text, *pages):
        assert PLANTED not in page
        assert MARKUP not in page
        assert "http://127.0.0.1:1/..." in text_of(page)
    assert not any(secret in page for page in pages)
    stored = api.get("webhooks/made")
    assert (stored["filter"]["entityType"], stored["note"], stored["owner"]) == ("topic", MARKUP, "User:admin")

    saved = step(visitor, "made", "save", etag=etag_of(visitor, "made"), format="cloudevents", prefix="orders-")
    assert "Saved." in saved.text
    assert SECRET.findall(saved.text) == []
    assert api.get("webhooks/made")["filter"] == {**dict.fromkeys(stored["filter"]), "prefix": "orders-"}

    [replaced] = SECRET.findall(step(visitor, "made", "rotate", overlap="1").text)
    assert replaced != secret
    for wrong in ("169", "-1", "x"):
        assert step(visitor, "made", "rotate", overlap=wrong).status_code == 400

    old = etag_of(visitor, "made")
    api.client.put("/v1/clusters/default/webhooks/made", json={"note": "changed elsewhere"}).raise_for_status()
    for late in ("save", "delete"):
        assert step(visitor, "made", late, etag=old, format="cloudevents").status_code == 412
    removed = step(visitor, "made", "delete", etag=etag_of(visitor, "made"))
    assert (removed.status_code, removed.headers["location"]) == (303, HOOKS)
    assert visitor.get(f"{HOOKS}/made").status_code == 404


async def test_a_new_secret_is_shown_though_the_deliveries_can_not_be_read(service: Service) -> None:
    api = refusing(service, lambda _, path: path.endswith("/deliveries"))
    async with browser_of(api, service.token) as browser:
        form = {"csrf": CSRF, "name": "unread", "url": URL}
        made = await browser.post(HOOKS, data=form)
        assert SECRET.search(made.text), made.text
        assert (await browser.get(f"{HOOKS}/unread")).status_code == 303


def test_a_chat_has_no_secret_and_no_rotation(visitor: Visitor) -> None:
    made = created(visitor, "chat", format="slack")
    assert (made.status_code, made.headers["location"]) == (303, f"{HOOKS}/chat")
    assert "Replace the signing secret" not in visitor.page(f"{HOOKS}/chat")


def test_a_sample_is_sent_and_listed(visitor: Visitor) -> None:
    created(visitor, "sampled")
    shown = step(visitor, "sampled", "test")
    assert "The sample was not taken" in text_of(shown.text)
    assert PLANTED not in shown.text
    deliveries = text_of(visitor.page(f"{HOOKS}/sampled")).partition("Last deliveries")[2]
    assert "test 1 failed" in deliveries


def test_a_refused_form_names_the_field_and_repeats_no_url(visitor: Visitor) -> None:
    for wrong in ({"name": "UPPER"}, {"url": f"ftp://127.0.0.1/{PLANTED}"}, {"entity": "nobody"}):
        refused = visitor.post(HOOKS, {"name": "wrong", "url": URL, "note": "kept", **wrong}, page=HOOKS)
        assert refused.status_code in {400, 404}, wrong
        assert 'role="alert"' in refused.text
        assert 'value="kept"' in refused.text
        assert PLANTED not in refused.text
    created(visitor, "twice")
    assert created(visitor, "twice").status_code == 412


def test_a_parked_webhook_is_on_the_overview_until_it_is_resumed(visitor: Visitor, service: Service, api: Api) -> None:
    rights = [{"operation": "DESCRIBE_CONFIGS", "resourceType": "user", "name": "*", "patternType": "literal"},
              {"operation": "ALTER", "resourceType": "webhooks", "name": "*", "patternType": "literal"}]  # fmt: skip
    token = api.token("User:parking", *rights)
    with Visitor(service, token) as owner:
        wait_for(lambda: owner.sign_in().status_code == 303)
        assert SECRET.search(wait_for(lambda: (made := created(owner, "parked")).status_code == 200 and made.text))
    for each in api.client.get("/v1/tokens", params={"principal": "User:parking"}).json()["items"]:
        api.client.delete(f"/v1/tokens/{each['id']}").raise_for_status()
    wait_for(lambda: api.get("webhooks/parked")["status"]["state"] == "parked")
    assert f'hx-get="{HOME}/awaiting"' in visitor.page("/console/")
    assert "1 webhook is parked parked" in text_of(visitor.page(f"{HOME}/awaiting"))
    assert "Nothing is sent until it is resumed" in visitor.page(f"{HOOKS}/parked")
    assert step(visitor, "parked", "resume").status_code == 409, "its owner has no token left"
    assert step(visitor, "parked", "assign", owner="User:admin").status_code == 303
    assert step(visitor, "parked", "resume").headers["location"] == f"{HOOKS}/parked?resumed=true"
    assert "parked" not in visitor.page(f"{HOME}/awaiting")


@pytest.mark.parametrize(
    ("grant", "sees", "alters"),
    [
        ({"role": "admin"}, True, True),
        ({"role": "auditor"}, True, False),
        ({"role": "viewer"}, False, False),
        ({"operation": "DESCRIBE", "resourceType": "webhooks", "name": "shown", "patternType": "literal"}, True, False),
        ({"operation": "ALTER", "resourceType": "webhooks", "name": "*", "cluster": "default"}, True, True),
        ({"operation": "ALL", "resourceType": "user", "name": "*"}, False, False),
    ],
)  # fmt: skip
def test_who_has_no_grant_sees_no_webhooks(
    visitor: Visitor, service: Service, api: Api, grant: dict[str, str], *, sees: bool, alters: bool
) -> None:
    created(visitor, "shown")
    name = "User:hooks-" + "-".join(grant.values()).replace("*", "all")
    pattern = {"patternType": "literal"} if "name" in grant else {}
    token = api.token(name, {**grant, **pattern})
    with Visitor(service, token) as member:
        wait_for(lambda: member.sign_in().status_code == 303)
        known = f"{grant.get('role') or grant['operation']} on"
        wait_for(lambda: known in text_of(member.page(f"{HOME}/access")))
        page = member.page("/console/")
        assert (f'href="{HOOKS}"' in page) == sees
        listed = member.page(HOOKS)
        assert (f'href="{HOOKS}/shown"' in listed) == sees
        assert ("New webhook" in listed) == alters
        assert member.get(f"{HOOKS}/shown").status_code == (200 if sees else 403)
