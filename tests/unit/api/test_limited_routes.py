"""Limits at the routes: a refusal ahead of all work, its form, and the headers of every limited answer."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import Request

from confplane.api.app import FAMILIES
from confplane.api.models import AnswerModel
from confplane.api.rendering import delayed, described
from confplane.api.request_context import REQUEST_CONTEXT, RequestContext
from confplane.api.responses import PreparedResponse
from confplane.api.routing.operations import Effect, read
from confplane.api.routing.routes import StrictRoute
from confplane.domain.access.identities import Authentication, Identity
from confplane.domain.errors import NotFoundError
from confplane.services.limits import HELD_AFTER, LimitClass, Limiter, RateLimit, RateLimits

if TYPE_CHECKING:
    from starlette.responses import Response

    from confplane.services.limits import Allowance

DONE: list[str] = []


class Item(AnswerModel):
    """An answer."""


async def _handler(name: str) -> PreparedResponse:
    DONE.append(name)
    if name == "absent":
        raise NotFoundError("there is none")
    return PreparedResponse(b"done", [])


ROUTE = StrictRoute(
    "GET", "/things/{name}", _handler, read("A thing", Item, limit=LimitClass.READ, tagged=False, problems=())
)
OPEN = StrictRoute("GET", "/open/{name}", _handler, read("Open", Item, limit=None, tagged=False, problems=()))


def allowance(burst: int, others: dict[LimitClass, int] | None = None) -> Allowance:
    bursts = {**(others or {}), LimitClass.READ: burst}
    limits = RateLimits({kind: RateLimit(0.1, each) for kind, each in bursts.items()}, waiting=1)
    found = Limiter(limits, clock=lambda: 0.0).of(Identity("User:alice", Authentication.TOKEN))
    assert found is not None
    return found


async def answer(route: StrictRoute, name: str, given: Allowance | None) -> Response:
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": f"/things/{name}",
        "path_params": {"name": name},
        "query_string": b"",
        "headers": [],
        REQUEST_CONTEXT: RequestContext({}, "r", 0.0, allowance=given),
        "app": SimpleNamespace(state=SimpleNamespace()),
    }

    async def receive() -> dict[str, Any]:
        pytest.fail("the body was read")

    DONE.clear()
    return await route.answer(Request(scope, receive))


def refused_at_once(of: Allowance) -> bool:
    """True if a refusal is answered without a turn of the event loop."""
    request = answer(ROUTE, "one", of)
    try:
        request.send(None)
    except StopIteration as stop:
        return bool(stop.value.status_code == 429)
    request.close()
    return False


async def test_refusals_of_a_caller_that_does_not_wait_are_held_back() -> None:
    given, others = allowance(1), allowance(1)
    await answer(ROUTE, "one", given)
    assert [refused_at_once(given) for _ in range(HELD_AFTER + 2)] == [True] * HELD_AFTER + [False, False]
    assert (await answer(ROUTE, "one", given)).status_code == 429
    await answer(ROUTE, "one", others)
    assert refused_at_once(others)


async def test_an_admitted_request_outweighs_one_refusal() -> None:
    now = 0.0
    limits = RateLimits({LimitClass.READ: RateLimit(1, 1), LimitClass.WRITE: RateLimit(1, 1_000)}, waiting=1)
    given = Limiter(limits, clock=lambda: now).of(Identity("User:alice", Authentication.TOKEN))
    assert given is not None

    async def refused_after_admitted(requests: int) -> bool:
        nonlocal now
        for _ in range(requests):
            now += 1
            assert (await answer(ROUTE, "one", given)).status_code == 200
            given.take(LimitClass.WRITE)  # of another class: changes nothing
        return refused_at_once(given)

    for _ in range(HELD_AFTER // 2 - 1):
        assert await refused_after_admitted(1)
        assert [refused_at_once(given) for _ in range(2)] == [True, True]
    assert await refused_after_admitted(1)
    assert [refused_at_once(given) for _ in range(2)] == [True, False]
    assert not await refused_after_admitted(1)
    assert await refused_after_admitted(3)


async def test_a_request_above_the_limit_is_refused_before_anything_is_done() -> None:
    given = allowance(2)
    for left in (1, 0):
        response = await answer(ROUTE, "one", given)
        assert (response.status_code, DONE) == (200, ["one"])
        assert response.headers["ratelimit-policy"] == '"read";q=2;w=20'
        assert response.headers["ratelimit"].startswith(f'"read";r={left};t=')
    response = await answer(ROUTE, "one", given)
    assert (response.status_code, DONE) == (429, [])
    assert response.headers["retry-after"] == "10"
    assert response.headers["ratelimit"] == '"read";r=0;t=20'
    problem = json.loads(bytes(response.body))
    assert (problem["type"], problem["kafkaErrorCode"], problem["kafkaErrorName"]) == (
        "/problems/limit-exceeded",
        89,
        "THROTTLING_QUOTA_EXCEEDED",
    )
    assert (problem["throttleTimeMs"], problem["retriable"]) == (10_000, True)
    assert problem["requestId"] == "r"


async def test_a_request_is_limited_by_the_class_of_its_operation_alone() -> None:
    given = allowance(2, {LimitClass.WRITE: 1, LimitClass.ADMIN: 3})
    statuses = [(await answer(ROUTE, "one", given)).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    for kind, burst in ((LimitClass.WRITE, 1), (LimitClass.ADMIN, 3)):
        assert dict(given.headers(kind))[b"ratelimit"].endswith(b";r=%d;t=0" % burst)


async def test_errors_have_the_headers_too() -> None:
    response = await answer(ROUTE, "absent", allowance(2))
    assert (response.status_code, response.headers["ratelimit"]) == (404, '"read";r=1;t=10')


async def test_without_limits_there_are_no_headers() -> None:
    for route, given in ((ROUTE, None), (OPEN, allowance(1))):
        for _ in range(3):
            response = await answer(route, "one", given)
            assert (response.status_code, "ratelimit" in response.headers) == (200, False)


def test_every_route_declares_its_class_and_open_ones_alone_have_none() -> None:
    operations = [route.operation for family in FAMILIES for route in family]
    assert all((operation.limit is None) is operation.is_open for operation in operations)
    assert all(
        operation.limit in {LimitClass.WRITE, LimitClass.ADMIN}
        for operation in operations
        if operation.effect not in {Effect.NOTHING, Effect.REPORT}
    )


def test_a_kept_describe_is_distinguished_only_by_its_delay() -> None:
    kept = described([b'{"entity":[]}'], [])
    assert delayed(kept, 0) is kept
    assert json.loads(delayed(kept, 1500)) == {**json.loads(kept), "throttleTimeMs": 1500}
