"""Sign-in, sign-out, and the end of sessions, on a running service."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, get_args

import httpx
import pytest

from confplane.console.app import PAGES
from confplane.console.page import FormDep
from confplane.console.sign_in import SignInFormDep
from confplane.devstack.postgres import SERVICE
from confplane.domain.texts import rfc3339
from tests.audit.rows import fetch, run
from tests.console.visitor import SIGN_IN, Visitor, csrf_of
from tests.support.service import Service, ServiceInThread
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.devstack.postgres import Postgres
    from tests.support.servers import Database

OTHER = {"Origin": "https://evil.example.com"}


def made_token(service: Service, principal: str, **options: Any) -> dict[str, Any]:
    """Create an API token; its id and text."""
    headers = {"Authorization": f"Bearer {service.token}"}
    response = httpx.post(
        f"{service.url}/v1/tokens", json={"principal": principal, **options}, headers=headers, trust_env=False
    )
    assert response.status_code == 201, response.text
    found: dict[str, Any] = response.json()
    return found


def test_a_session_shows_pages_and_only_its_digest_is_stored(
    visitor: Visitor, service: Service, module_database: Database
) -> None:
    assert "admin" in visitor.page("/console/")
    cookie = visitor.session
    assert cookie is not None
    rows = fetch(module_database.service_dsn, "SELECT console_sessions::text FROM console_sessions")
    assert rows
    for secret in (cookie, cookie.partition(".")[0], service.token, service.token.encode().hex()):
        assert secret not in str(rows)


def test_cookies_are_for_the_console_alone(stranger: Visitor) -> None:
    given = stranger.sign_in().headers.get_list("set-cookie")
    session = next(each for each in given if each.startswith("confplane_session="))
    assert {part.strip().lower() for part in session.split(";")[1:]} == {"httponly", "path=/console", "samesite=lax"}


def test_without_a_session_pages_lead_to_the_sign_in_and_back(stranger: Visitor) -> None:
    refused = stranger.get("/console/design?a=b")
    assert refused.status_code == 303
    assert refused.headers["location"] == "/console/sign-in?return_to=%2Fconsole%2Fdesign%3Fa%3Db"
    assert stranger.get("/console/", headers={"HX-Request": "true"}).headers["hx-redirect"] == SIGN_IN
    for shown_url in (
        "https://confplane.example.com/console/design?a=b",
        "https://evil.example.com/docs",
        "https://[",
        "",
    ):
        headers = {"HX-Request": "true", "HX-Current-URL": shown_url}
        led = stranger.get("/console/clusters/default/activity", headers=headers).headers["hx-redirect"]
        assert led == (refused.headers["location"] if "design" in shown_url else SIGN_IN)
    shown = stranger.page(refused.headers["location"])
    assert 'name="return_to" value="/console/design?a=b"' in shown
    assert stranger.sign_in(return_to="/console/design?a=b").headers["location"] == "/console/design?a=b"


@pytest.mark.parametrize(
    "given",
    [
        "https://evil.example.com/", "//evil.example.com/console/", "/docs", "/console", "/console/../docs",
        "/console/%2e%2e/docs", "/console/\\evil.example.com", "javascript:alert(1)", "/console/\r\nSet-Cookie: a=b", "/consolé/",
        "/console/" + "x" * 1_016,
    ],
)  # fmt: skip
def test_a_sign_in_leads_nowhere_else(stranger: Visitor, given: str) -> None:
    response = stranger.sign_in(return_to=given)
    assert response.status_code == 303
    assert response.headers["location"] == "/console/"
    assert 'value="/console/"' in stranger.get(SIGN_IN, params={"return_to": given}).text


@pytest.mark.parametrize(
    "token", ["", "confplane_" + "x" * 49, "two words", "zwei\nzeilen", "é" * 20, "x" * 20_000, "ab.cd.ef"]
)
def test_a_wrong_token_makes_no_session(stranger: Visitor, token: str) -> None:
    stranger.token = token
    response = stranger.sign_in()
    assert response.status_code in {400, 401}
    assert 'role="alert"' in response.text
    assert stranger.session is None
    assert token not in response.text or not token


def test_a_sign_in_makes_a_new_session_and_ends_the_earlier_one(service: Service) -> None:
    with Visitor(service) as one, Visitor(service) as thief:
        one.signed_in()
        first = one.session
        assert first is not None
        one.signed_in()
        assert one.session != first
        thief.client.cookies.set("confplane_session", first, path="/console")
        wait_for(lambda: thief.get("/console/").status_code == 303)


def test_a_made_up_session_is_not_taken_over(service: Service) -> None:
    """Session fixation: an id that the service did not give is worth nothing, before and after a sign-in."""
    with Visitor(service) as victim:
        victim.client.cookies.set("confplane_session", "chosen.by-somebody", path="/console")
        assert victim.get("/console/").status_code == 303
        response = victim.sign_in()
        assert response.status_code == 303
        assert "chosen" not in "".join(response.headers.get_list("set-cookie"))


def test_a_stolen_cookie_is_worth_nothing_after_the_sign_out(pair_of_consoles: tuple[Service, Service]) -> None:
    one, other = pair_of_consoles
    with Visitor(one, made_token(one, "User:robbed")["token"]) as visitor, Visitor(other) as thief:
        wait_for(lambda: visitor.sign_in().status_code == 303)
        stolen = visitor.session
        assert stolen is not None
        thief.client.cookies.set("confplane_session", stolen, path="/console")
        wait_for(lambda: thief.get("/console/").status_code == 200)  # a session is one of all replicas
        assert visitor.post("/console/sign-out", {}, page="/console/").headers["location"] == SIGN_IN
        assert visitor.session is None
        visitor.client.cookies.set("confplane_session", stolen, path="/console")
        assert visitor.get("/console/").status_code == 303
        wait_for(lambda: thief.get("/console/").status_code == 303)


def test_a_revoked_token_ends_its_sessions_on_every_replica(pair_of_consoles: tuple[Service, Service]) -> None:
    one, other = pair_of_consoles
    made = made_token(one, "User:leaver")
    with Visitor(one, made["token"]) as visitor:
        wait_for(lambda: visitor.sign_in().status_code == 303)
        cookie = visitor.session
        assert cookie is not None
        headers = {"Authorization": f"Bearer {one.token}"}
        httpx.delete(f"{one.url}/v1/tokens/{made['id']}", headers=headers, trust_env=False).raise_for_status()
        with Visitor(other) as elsewhere:
            elsewhere.client.cookies.set("confplane_session", cookie, path="/console")
            wait_for(lambda: {each.get("/console/").status_code for each in (visitor, elsewhere)} == {303})


@pytest.mark.parametrize("column", ["expires_at = now()", "used_at = now() - interval '1 hour'"])
def test_a_session_ends_by_time(visitor: Visitor, module_database: Database, column: str) -> None:
    visitor.page("/console/")
    run(module_database.owner_dsn, f"UPDATE console_sessions SET {column}")  # noqa: S608 - of constants
    wait_for(lambda: visitor.get("/console/").status_code == 303)


def test_a_session_ends_no_later_than_its_token(service: Service, module_database: Database) -> None:
    soon = rfc3339(datetime.now(UTC) + timedelta(hours=1))
    made = made_token(service, "User:short", expiresAt=soon)
    with Visitor(service, made["token"]) as visitor:
        wait_for(lambda: visitor.sign_in().status_code == 303)
    [(lasts,)] = fetch(
        module_database.service_dsn,
        "SELECT extract(epoch FROM expires_at - created_at) FROM console_sessions WHERE principal = 'User:short'",
    )
    assert 0 < lasts <= 3600


def test_the_api_rejects_the_cookie(visitor: Visitor) -> None:
    cookie = visitor.session
    assert cookie is not None
    for path in ("/v1/whoami", "/v1/clusters"):
        response = visitor.client.get(path, headers={"Cookie": f"confplane_session={cookie}"})
        assert response.status_code == 401
    bearer = visitor.client.get("/v1/whoami", headers={"Authorization": f"Bearer {cookie}"})
    assert bearer.status_code == 401


# -- forms


def test_every_form_is_checked() -> None:
    checks = {get_args(each)[1].dependency for each in (FormDep, SignInFormDep)}
    posts = [route for module in PAGES for route in module.router.routes if "POST" in route.methods]
    assert posts
    for route in posts:
        assert checks & {each.call for each in route.dependant.dependencies}, route.path


@pytest.mark.parametrize("token", ["", "x", "from another session"])
def test_a_form_needs_the_token_of_its_session(visitor: Visitor, service: Service, token: str) -> None:
    if token == "from another session":
        with Visitor(service) as other:
            token = csrf_of(other.signed_in().page("/console/"))
    refused = visitor.post("/console/sign-out", {"csrf": token})
    assert refused.status_code == 403
    visitor.page("/console/")


@pytest.mark.parametrize(
    "headers", [OTHER, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}]
)
def test_a_form_of_another_site_is_refused(visitor: Visitor, headers: dict[str, str]) -> None:
    token = csrf_of(visitor.page("/console/"))
    assert visitor.post("/console/sign-out", {"csrf": token}, headers=headers).status_code == 403
    visitor.page("/console/")
    sign_in = visitor.post(SIGN_IN, {"token": visitor.token}, page=SIGN_IN, headers=headers)
    assert sign_in.status_code == 403


def test_nobody_is_signed_in_by_another_page(service: Service, stranger: Visitor) -> None:
    """Login CSRF: the token of the form belongs to the browser that was shown the form."""
    with Visitor(service) as attacker:
        token = csrf_of(attacker.page(SIGN_IN))
    for csrf in (token, ""):
        response = stranger.post(SIGN_IN, {"token": service.token, "csrf": csrf})
        assert response.status_code == 403
        assert stranger.session is None


@pytest.mark.parametrize("kind", ["json", "parts", "text", "long"])
def test_other_bodies_are_no_forms(visitor: Visitor, kind: str) -> None:
    csrf = csrf_of(visitor.page("/console/"))
    options: dict[str, dict[str, Any]] = {
        "json": {"json": {"csrf": csrf}},
        "parts": {"files": {"csrf": (None, csrf)}},
        "text": {"content": f"csrf={csrf}", "headers": {"Content-Type": "text/plain"}},
        "long": {"data": {"csrf": csrf, "more": "x" * 2_000_000}},
    }
    assert visitor.client.post("/console/sign-out", **options[kind]).status_code == 403
    visitor.page("/console/")


def test_a_form_has_bounds_of_its_size_and_fields(stranger: Visitor, visitor: Visitor) -> None:
    many = {f"field-{number}": "" for number in range(10)}
    for more in (many, {"more": "x" * 40_000}):
        refused = stranger.sign_in(**more)
        assert refused.status_code == 403
        assert "The form has more than" in refused.text
        assert stranger.session is None
    fields = {f"field-{number}": "" for number in range(10_001)}
    assert visitor.post("/console/sign-out", fields, page="/console/").status_code == 403
    visitor.page("/console/")


# -- pages


def test_a_request_that_is_refused_is_not_called_a_page_that_is_absent(visitor: Visitor) -> None:
    assert "no such page" in visitor.get("/console/none").text
    refused = visitor.get("/console/sign-out")
    assert refused.status_code == 405
    assert "no such page" not in refused.text


@pytest.mark.parametrize(
    "path", ["/console/", "/console/design", "/console/sign-in", "/console/none", "/console/assets/none"]
)
def test_every_page_has_the_headers_of_its_policy(visitor: Visitor, path: str) -> None:
    headers = visitor.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self'",
        "connect-src": "'self'", "base-uri": "'none'", "form-action": "'self'", "frame-ancestors": "'none'",
    }  # fmt: skip
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


def test_pages_have_no_inline_script_or_style_and_their_assets_are_kept(visitor: Visitor) -> None:
    for path in ("/console/", "/console/design", SIGN_IN):
        page = visitor.page(path)
        assert not re.search(
            r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=|javascript:|https?://(?!127\.0\.0\.1)", page
        )
        for url in re.findall(r'(?:src|href)="(/console/assets/[^"]+)"', page):
            kept = visitor.get(url)
            assert kept.status_code == 200
            assert "immutable" in kept.headers["cache-control"]


def test_the_specification_has_no_page(service: Service) -> None:
    paths = httpx.get(f"{service.url}/openapi.json", trust_env=False).json()["paths"]
    assert paths
    assert not [path for path in paths if path.startswith("/console")]


def test_the_first_page_leads_to_the_console_or_to_the_docs(
    service: Service, chroot: str, migrated: Database, tmp_path: Path
) -> None:
    for path in ("/", "/console"):
        assert httpx.get(service.url + path, trust_env=False).headers["location"] == "/console/"
    with Service(tmp_path, connect=chroot, dsn=migrated.service_dsn) as off:
        assert httpx.get(off.url, trust_env=False).headers["location"] == "/docs"
        for path in ("/console", "/console/", SIGN_IN):
            response = httpx.get(off.url + path, trust_env=False)
            assert response.status_code == 404
            assert "console_key_file" in response.text
        assert "The web console is off: console_key_file is not set" in off.tail()


def test_sessions_go_on_while_postgres_is_away(
    own_postgres: Postgres, chroot: str, console_settings: dict[str, str], tmp_path: Path
) -> None:
    dsn = own_postgres.dsn(SERVICE, "trail")
    with (
        ServiceInThread(tmp_path, connect=chroot, dsn=dsn, settings=console_settings) as alone,
        Visitor(alone) as known,
        Visitor(alone) as late,
    ):
        known.signed_in()
        known.page("/console/")
        own_postgres.stop()
        assert "default" in known.page("/console/")
        refused = late.sign_in()
        assert refused.status_code == 503
        assert "Nobody can sign in now" in refused.text
        assert late.session is None
        out = known.post("/console/sign-out", {}, page="/console/")
        assert out.status_code == 503
        known.page("/console/")
        own_postgres.start()
        wait_for(lambda: late.sign_in().status_code == 303)
        late.page("/console/")
