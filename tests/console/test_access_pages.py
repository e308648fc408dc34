"""The pages of access and of definitions: tokens and grants are managed, a secret is shown once, keys are found."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.responses import JSONResponse, Response

from tests.console.own_front import CSRF, browser_of
from tests.console.visitor import Visitor
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from tests.support.service import Service

HOME = "/console/clusters/default"
TOKENS = f"{HOME}/access/tokens"
GRANTS = f"{HOME}/access/grants"
MARKUP = "<img src=x onerror=alert(1)>"


def created(visitor: Visitor, principal: str, **form: str) -> str:
    """Create a token on the page, and return its secret."""
    made = visitor.post(TOKENS, {"principal": principal, "step": "create", **form}, page=TOKENS)
    assert made.status_code == 200, made.text[-2000:]
    [secret] = re.findall(r"confplane_[A-Za-z0-9]{49}", made.text)
    return str(secret)


def ids_of(visitor: Visitor, path: str, principal: str) -> list[str]:
    """Return the ids of what can be changed on a page of a principal."""
    return re.findall(r'name="id" value="([^"]+)"', visitor.page(f"{path}?principal={principal}"))


def test_a_token_is_created_rotated_and_revoked(visitor: Visitor, service: Service) -> None:
    secret = created(visitor, "User:managed", note=MARKUP, readOnly="on", days="2")
    shown = visitor.page(f"{TOKENS}?principal=User:managed")
    assert secret not in shown
    assert MARKUP not in shown
    assert html.escape(MARKUP) in shown
    headers = {"Authorization": f"Bearer {secret}"}
    wait_for(lambda: httpx.get(f"{service.url}/v1/whoami", headers=headers, trust_env=False).status_code == 200)
    [token_id] = ids_of(visitor, TOKENS, "User:managed")
    form = {"id": token_id, "step": "rotate", "overlap": "1"}
    rotated = visitor.post(TOKENS, form, page=TOKENS)
    assert re.search(r"confplane_[A-Za-z0-9]{49}", rotated.text)
    for each in ids_of(visitor, TOKENS, "User:managed"):
        assert visitor.post(TOKENS, {"id": each, "step": "revoke"}, page=TOKENS).status_code == 303
    wait_for(lambda: httpx.get(f"{service.url}/v1/whoami", headers=headers, trust_env=False).status_code == 401)
    assert ids_of(visitor, TOKENS, "User:managed") == []


def test_a_token_is_narrowed_by_operations_and_revoked_with_those_it_created(
    visitor: Visitor, service: Service
) -> None:
    grant = {"principal": "User:parent", "permission": "allow", "role": "admin"}
    headers = {"Authorization": f"Bearer {service.token}"}
    httpx.post(f"{service.url}/v1/grants", json=grant, headers=headers, trust_env=False).raise_for_status()
    first = created(visitor, "User:parent")
    with Visitor(service, first) as parent:
        wait_for(lambda: parent.sign_in().status_code == 303)
        wait_for(lambda: "admin on everything" in parent.page(f"{HOME}/access"))
        limits = {"operation ALTER_CONFIGS": "on", "operation DESCRIBE_CONFIGS": "on", "limit": "default"}
        second = created(parent, "User:parent", note="a child", **limits)
        shown = parent.page(TOKENS)
        assert "clusters: default; operations: ALTER_CONFIGS, DESCRIBE_CONFIGS" in shown
        assert "created with" in shown
        mine = {"Authorization": f"Bearer {second}"}
        whoami = f"{service.url}/v1/whoami"
        wait_for(lambda: httpx.get(whoami, headers=mine, trust_env=False).status_code == 200)
        narrowing = httpx.get(whoami, headers=mine, trust_env=False).json()["narrowing"]
        assert narrowing["operations"] == ["ALTER_CONFIGS", "DESCRIBE_CONFIGS"]
    [parent_id] = re.findall(r"created with <span class=.mono.>([^<]+)<", shown)
    form = {"id": parent_id, "step": "revoke", "withCreated": "on"}
    assert visitor.post(TOKENS, form, page=TOKENS).status_code == 303
    wait_for(lambda: httpx.get(whoami, headers=mine, trust_env=False).status_code == 401)


def test_a_grant_is_added_and_removed(visitor: Visitor) -> None:
    form = {"principal": "Group:granted", "what": "operation ALTER_CONFIGS", "resourceType": "user", "name": "g-"}
    assert visitor.post(GRANTS, {**form, "prefixed": "on", "note": MARKUP}, page=GRANTS).status_code == 303
    shown = visitor.page(f"{GRANTS}?principal=Group:granted")
    assert "ALTER_CONFIGS on user" in shown
    assert MARKUP not in shown
    wait_for(lambda: "ALTER_CONFIGS" in visitor.page(f"{HOME}/access/who?resource=user:g-1"))
    wait_for(lambda: "Group:granted" in visitor.page(f"{HOME}/access/who?group=Group:granted").partition("<tbody>")[2])
    [grant_id] = ids_of(visitor, GRANTS, "Group:granted")
    assert visitor.post(GRANTS, {"id": grant_id, "step": "remove"}, page=GRANTS).status_code == 303
    assert ids_of(visitor, GRANTS, "Group:granted") == []


def test_what_the_api_refuses_is_said_and_what_was_typed_is_kept(visitor: Visitor) -> None:
    for path, form in (
        (TOKENS, {"principal": "nobody", "note": MARKUP}),
        (TOKENS, {"principal": "User:a", "days": "soon", "note": MARKUP}),
        (GRANTS, {"principal": "nobody", "what": "role viewer", "note": MARKUP}),
        (GRANTS, {"principal": "User:a", "what": "", "note": MARKUP}),
    ):
        refused = visitor.post(path, {**form, "step": "create"}, page=path)
        assert refused.status_code == 400, (path, form)
        assert 'role="alert"' in refused.text
        assert f'value="{html.escape(MARKUP)}"' in refused.text


@pytest.mark.parametrize(
    ("form", "noun"),
    [
        ({"days": "-3000000"}, "Days"),
        ({"days": "-99999999999"}, "Days"),
        ({"days": "99999999999"}, "Days"),
        ({"days": "0"}, "Days"),
        ({"days": "9" * 5_000}, "Days"),
        ({"step": "rotate", "id": "x", "overlap": "9" * 30}, "Hours"),
        ({"step": "rotate", "id": "x", "overlap": ""}, "Hours"),
    ],
)
def test_days_and_hours_have_bounds(visitor: Visitor, form: dict[str, str], noun: str) -> None:
    refused = visitor.post(TOKENS, {"principal": "User:bounded", "step": "create", **form}, page=TOKENS)
    assert refused.status_code == 400
    assert f"{noun} must be a whole number from" in refused.text
    assert ids_of(visitor, TOKENS, "User:bounded") == []


async def test_the_secret_of_a_new_token_is_shown_though_the_list_fails() -> None:
    async def api(scope: Scope, receive: Receive, send: Send) -> None:
        answer: Response = JSONResponse({"items": [{"name": "default"}], "authenticatedBy": "token", "grants": []})
        if scope["path"] == "/v1/tokens":
            answer = JSONResponse({"title": "Unavailable", "detail": "Postgres is away"}, 503)
            if scope["method"] == "POST":
                answer = JSONResponse({"principal": "User:made", "token": "confplane_made"}, 201)
        await answer(scope, receive, send)

    async with browser_of(api) as browser:
        form = {"csrf": CSRF, "principal": "User:made", "step": "create"}
        made = await browser.post(TOKENS, data=form)
        assert made.status_code == 200
        assert "confplane_made" in made.text
        assert "Postgres is away" in made.text
        assert (await browser.get(TOKENS)).status_code == 503


def test_a_caller_without_grants_sees_its_own_and_is_refused(visitor: Visitor, service: Service) -> None:
    secret = created(visitor, "User:nobody-special")
    with Visitor(service, secret) as other:
        wait_for(lambda: other.sign_in().status_code == 303)
        assert "no grant yet" in other.page(f"{HOME}/access")
        assert ids_of(other, TOKENS, "") == ids_of(visitor, TOKENS, "User:nobody-special")
        assert other.post(GRANTS, {"principal": "User:*", "what": "role admin"}, page=GRANTS).status_code == 403
        assert other.get(f"{HOME}/access/who?principal=User:somebody").status_code == 403


def test_keys_are_found_by_words_of_their_description(visitor: Visitor) -> None:
    path = f"{HOME}/definitions"
    found = visitor.page(f"{path}?search=bytes per second slows")
    assert "producer_byte_rate" in found
    assert "retention.ms" not in found
    topics = visitor.page(f"{path}?search=min.cleanable&section=topic")
    assert re.search(r"1\s+key[.]", topics)
    assert "No key has these words" in visitor.page(f"{path}?search={MARKUP}")
    assert MARKUP not in visitor.page(f"{path}?search={MARKUP}")
    part = visitor.get(f"{path}?search=retention", headers={"HX-Request": "true"}).text
    assert "<html" not in part
    assert "retention.ms" in part
