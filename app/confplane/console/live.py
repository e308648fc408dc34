"""The live tail of a page: the changes of the feed as they happen, as server-sent events with a piece of HTML each.

The browser's `EventSource` connects with the session's cookie, and after a lost connection with the id of the last
change as well. The API's stream has the session's token, which no script sees.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from confplane.console.api import ApiRefusal, TokenRefusedError
from confplane.console.page import ConsolePage, console_of, session_of
from confplane.domain.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send

router = APIRouter()

_CHECK_S: Final = 0.5
"""Seconds between two checks of the session."""
_RETRY_MS: Final = 5_000
_MS: Final = 1_000
_LONGEST: Final = 512
"""Characters of the longest position."""
_ENDED: Final = "credential-ended"
_SHOWN: Final = frozenset({"change", "put-back"})
_COMMENT: Final = b":\n\n"
_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


@router.get("/console/clusters/{cluster}/live")
async def live(
    request: Request,
    cluster: str,
    *,
    show: Literal["row", "note"] = "row",
    entity: str | None = None,
    key: str | None = None,
    principal: str | None = None,
    after: Annotated[str | None, Query(max_length=_LONGEST)] = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=_LONGEST)] = None,
) -> Response:
    """The changes that match, each as a row of the audit page or as a note of an entity's page."""
    page = ConsolePage(request, await session_of(request, use=False))
    query = {"entity": entity or None, "key": key or None, "principal": principal or None}
    return _LiveStream(page, cluster, show, query, last_event_id or after)


class _LiveStream(Response):
    """A stream of changes, until the session or the connection ends.

    Args:
        page: The session.
        cluster: The cluster.
        show: The form of a change.
        query: The filters.
        after: The position to continue after; None: from now on.
    """

    def __init__(self, page: ConsolePage, cluster: str, show: str, query: dict[str, Any], after: str | None) -> None:
        super().__init__()
        self._page = page
        self._cluster = cluster
        self._show = show
        self._query = query
        self._after = after
        self._begun = False
        self._rest = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        del scope
        gone, ended = asyncio.ensure_future(_gone(receive)), asyncio.ensure_future(self._session_ended())
        until = asyncio.ensure_future(asyncio.wait((gone, ended), return_when=asyncio.FIRST_COMPLETED))

        async def begin() -> None:
            if not self._begun:
                self._begun = True
                await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})

        async def pass_on(piece: bytes) -> None:
            first = b"" if self._begun else self._first()
            await begin()
            *lines, self._rest = (self._rest + piece).split(b"\n")
            body = first + (b"".join(map(self._event, filter(None, lines))) or _COMMENT)
            await send({"type": "http.response.body", "body": body, "more_body": True})

        try:
            last = await self._follow(pass_on, until)
            has_ended = ended.done()
        finally:
            for task in (until, gone, ended):
                task.cancel()
        await begin()
        await send({"type": "http.response.body", "body": _framed("ended", {}) if has_ended else last})

    async def _follow(self, pass_on: Callable[[bytes], Awaitable[None]], until: Awaitable[object]) -> bytes:
        """Pass the API's stream on, and return the last event: if the browser connects again, nothing or a pause."""
        headers = {"Accept": "application/x-ndjson", **({} if self._after is None else {"Last-Event-ID": self._after})}
        path = f"/v1/clusters/{self._cluster}/changes"
        try:
            await self._page.api.stream(path, query=self._query, headers=headers, until=until, pass_on=pass_on)
        except TokenRefusedError:
            return _framed("ended", {})
        except ApiRefusal as refused:
            if refused.retry_after is None:
                return _framed("refused", refused.detail)
            return b"retry: %d\n\n" % (int(refused.retry_after) * _MS)
        return b""

    def _first(self) -> bytes:
        # A page that has no position was made before the stream began: it has to be read again.
        return b"retry: %d\n\n" % _RETRY_MS + (_framed("begin", {}) if self._after is None else b"")

    def _event(self, line: bytes) -> bytes:
        """Return an event of the API as one of the page."""
        event: dict[str, Any] = orjson.loads(line)
        if event["type"] in _SHOWN:
            change = _audited(event)
            html = self._page.partial("live.html", change=change, show=self._show, cluster=self._cluster).body
            return _framed("change", {"id": change["changeId"], "html": bytes(html).decode()}, event.get("id"))
        if event["type"] == "reset":
            return _framed("reset", {}, event.get("id"))
        if event["type"] == "goodbye":
            ended = event["reason"] == _ENDED
            return _framed("ended", {}) if ended else b"retry: %d\n\n" % event["retryMs"]
        return _COMMENT

    async def _session_ended(self) -> None:
        """Return when the session has ended."""
        console, cookie = console_of(self._page.request), self._page.session.cookie
        while True:
            await asyncio.sleep(_CHECK_S)
            try:
                if await console.sessions.find(cookie, use=False) is None:
                    return
            except UnavailableError:
                continue  # the API still checks the token


async def _gone(receive: Receive) -> None:
    """Return when the browser has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _framed(kind: str, data: Any, event_id: str | None = None) -> bytes:
    # JSON, because a line end within the data would be one of the framing.
    identified = b"" if event_id is None else b"id: %s\n" % event_id.encode()
    return b"event: %s\n%sdata: %s\n\n" % (kind.encode(), identified, orjson.dumps(data))


def _audited(event: dict[str, Any]) -> dict[str, Any]:
    """Return a change of the feed in the form that the audit trail has it. A secret is in both values, hidden."""
    entities = [
        {
            "facet": each["facet"],
            "id": each["id"],
            "keys": [key["key"] for key in each["keys"]],
            **{
                side: {key["key"]: key[side] for key in each["keys"] if key["sensitive"] or key[side] is not None}
                for side in ("before", "after")
            },
        }
        for each in event["entities"]
    ]
    kind = "external" if event["source"] == "external" else "change"
    return {
        **event,
        "kind": event["type"] if event["type"] == "put-back" else kind,
        "createdAt": event["time"],
        "committedAt": None,
        "outcome": "committed",
        "reverts": [],
        "entities": entities,
    }
