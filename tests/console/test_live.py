"""The live tail: changes as the API's feed has them, for the session's token, until the session ends."""

from __future__ import annotations

import html
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from starlette.responses import JSONResponse

from confplane.console.sessions import IDLE_S, LIFETIME_S, SessionKeeper
from confplane.services.ports.console_sessions import StoredSession
from tests.console.own_front import KEY, browser_of, refusing
from tests.console.visitor import Visitor
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from starlette.types import Receive, Scope, Send

    from tests.console.api import Api
    from tests.support.service import Service

HOME = "/console/clusters/default"
LIVE = f"{HOME}/live"
Event = dict[str, str]


def events_of(lines: Iterator[str]) -> Iterator[Event]:
    """Parse a stream as a browser does."""
    event: Event = {}
    for line in lines:
        name, _, text = line.partition(": ")
        if name in {"event", "id", "data", "retry"}:
            event[name] = text
        elif not line:
            if event:
                yield event
            event = {}


@contextmanager
def tail(visitor: Visitor, last: str | None = None, **query: str) -> Iterator[Iterator[Event]]:
    """Open a tail; the events begin when it is sure to get what comes."""
    headers = {} if last is None else {"Last-Event-ID": last}
    with visitor.client.stream("GET", LIVE, params=query, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        yield (event for event in events_of(response.iter_lines()) if "event" in event)


def shown(event: Event) -> str:
    """Return the words of a change."""
    assert event["event"] == "change", event
    return html.unescape(json.loads(event["data"])["html"])


def set_rate(api: Api, user: str, value: int, **why: str) -> None:
    """Change a quota."""
    api.put(f"client-quotas/user={user}", {"quotas": {"request_percentage": value}}, **why)


def test_changes_come_as_rows_that_the_audit_page_shows_as_well(visitor: Visitor, api: Api) -> None:
    reason = "<img src=x>\r\ndata: {}\r\n\r\n"
    with tail(visitor, entity="user=live") as events:
        assert next(events)["event"] == "begin"
        set_rate(api, "live-other", 1)
        set_rate(api, "live", 5, reason=reason)
        event = next(events)
    row = json.loads(event["data"])
    assert "user live:" in shown(event)
    assert html.escape(reason, quote=False).replace("\r\n", "\n") in row["html"].replace("\r\n", "\n")
    assert "<img" not in row["html"]
    assert f'id="change-{row["id"]}"' in visitor.page(f"{HOME}/audit")


def test_a_tail_continues_after_the_last_change_on_either_replica(
    api: Api, pair_of_consoles: tuple[Service, Service]
) -> None:
    token = api.token("User:live-viewer", {"role": "viewer"})
    first, second = pair_of_consoles
    with Visitor(first, token) as browser, Visitor(second, token) as other:
        for each in (browser, other):
            wait_for(lambda each=each: each.sign_in().status_code == 303)  # type: ignore[misc]
        with tail(browser, entity="user=resumed") as events:
            next(events)
            set_rate(api, "resumed", 1)
            last = next(events)["id"]
        set_rate(api, "resumed", 2)
        set_rate(api, "resumed", 3)
        # A new connection has the position in its address, one that the browser opens again has it in a header.
        for connected in (tail(browser, after=last), tail(other, last, after="overridden")):
            with connected as events:
                for value in (2, 3):
                    assert f'to <span title="{value}">' in shown(next(events))


def test_nobody_sees_more_than_the_feed_shows(service: Service, api: Api) -> None:
    seen = {"resourceType": "user", "name": "live-mine", "patternType": "prefixed"}
    token = api.token("User:live-team", {"operation": "DESCRIBE_CONFIGS", **seen})
    with Visitor(service, token) as member:
        wait_for(lambda: member.sign_in().status_code == 303)
        with tail(member) as events:
            assert next(events)["event"] == "begin"
            set_rate(api, "live-theirs", 1, reason="hidden-reason")
            set_rate(api, "live-mine", 1)
            event = next(events)
            assert "live-mine" in shown(event)
            assert token not in str(event)
        with tail(member, entity="user=live-theirs") as events:
            refused = next(events)
            assert refused["event"] == "refused"
            assert "DESCRIBE_CONFIGS" in refused["data"]


def test_a_secret_is_in_no_event(visitor: Visitor, api: Api) -> None:
    with tail(visitor, entity="broker=77") as events:
        next(events)
        for value in ("s3cr3t-of-the-tail", "another-s3cr3t"):
            api.put("configs/broker=77", {"configs": {"key.of.a.tail": value}})
        for event in (next(events), next(events)):
            assert "key.of.a.tail" in shown(event)
            assert "(hidden)" in shown(event)
            assert "s3cr3t" not in str(event)


def test_a_sign_out_ends_the_tails_of_the_session(service: Service) -> None:
    with Visitor(service) as browser:
        browser.signed_in()
        with tail(browser) as events, Visitor(service) as same:
            same.client.cookies = browser.client.cookies
            next(events)
            out = same.post("/console/sign-out", {}, page="/console/")
            assert out.status_code == 303
            assert [event["event"] for event in events][-1] == "ended"


def test_a_revoked_token_ends_its_tails(service: Service, api: Api) -> None:
    token = api.token("User:live-revoked", {"role": "viewer"})
    [made] = api.client.get("/v1/tokens", params={"principal": "User:live-revoked"}).json()["items"]
    with Visitor(service, token) as browser:
        wait_for(lambda: browser.sign_in().status_code == 303)
        with tail(browser) as events:
            next(events)
            api.client.delete(f"/v1/tokens/{made['id']}").raise_for_status()
            assert [event["event"] for event in events][-1] == "ended"


def test_a_browser_without_a_session_is_led_to_the_sign_in(stranger: Visitor) -> None:
    answer = stranger.get(LIVE)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/console/sign-in")


class OneRow:
    """A store of one session, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.used_at = 0.0
        self.row: StoredSession | None = None

    async def add(self, digest: bytes, token: bytes, principal: str, expires_at: datetime) -> None:
        del digest, expires_at
        self.row = StoredSession(token, principal, LIFETIME_S)

    async def find(self, digest: bytes) -> StoredSession | None:
        del digest
        return self.row if self.now - self.used_at < IDLE_S else None

    async def touch(self, digest: bytes) -> None:
        del digest
        self.used_at = self.now

    async def remove(self, digest: bytes) -> None:
        del digest
        self.row = None


@pytest.mark.parametrize("use", [True, False])
async def test_an_open_tail_keeps_no_session(*, use: bool) -> None:
    store = OneRow()
    keeper = SessionKeeper(store, KEY, clock=lambda: store.now)
    cookie = await keeper.create("a token", "User:idle", None)
    assert await keeper.find(cookie) is not None
    while store.now < IDLE_S:
        store.now += 60
        found = await keeper.find(cookie, use=use)
    assert (found is not None) == use


async def test_a_token_that_is_refused_ends_a_tail(service: Service) -> None:
    async with browser_of(refusing(service, lambda _, path: path.endswith("/changes"))) as browser:
        assert (await browser.get(LIVE)).text == "event: ended\ndata: {}\n\n"


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [(429, {"Retry-After": "7"}, "retry: 7000\n\n"), (503, {"Retry-After": "1"}, "retry: 1000\n\n"),
     (410, {}, 'event: refused\ndata: "Why"\n\n')],
)  # fmt: skip
async def test_a_refusal_that_may_pass_is_tried_again(status: int, headers: dict[str, str], expected: str) -> None:
    async def api(scope: Scope, receive: Receive, send: Send) -> None:
        problem: Any = {"title": "Refused", "detail": "Why"}
        answer = JSONResponse(problem, status, headers, media_type="application/problem+json")
        await answer(scope, receive, send)

    async with browser_of(api) as browser:
        assert (await browser.get(LIVE)).text == expected


@pytest.mark.parametrize(
    ("path", "is_live"),
    [
        ("audit", True), ("audit?entity=user=live&since=2h", True), ("audit?outcome=committed", True),
        ("audit?outcome=open", False), ("audit?result=refused", False), ("audit?until=1h", False),
        ("audit?requestId=a", False), ("audit?entity=cluster", False), ("entities/user=live", True),
        ("entities/user=live/history", True), ("entities/user=live/access", True),
        ("entities/user=live/edit/client-quotas", True),
    ],
)  # fmt: skip
def test_pages_to_which_new_changes_belong_are_live(visitor: Visitor, path: str, *, is_live: bool) -> None:
    assert ("data-live=" in visitor.page(f"{HOME}/{path}")) == is_live
