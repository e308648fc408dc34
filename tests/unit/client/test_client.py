from __future__ import annotations

import inspect
import json
import time
import traceback
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from confplane import client as package
from confplane.client import Answer, AsyncConfplane, Change, ClientError, ProblemError
from confplane.client import errors as client_errors
from confplane.domain.entities import Entity

if TYPE_CHECKING:
    from collections.abc import Callable

    from confplane.client.tokens import Token

PROBLEM = {
    "type": "/problems/precondition-failed",
    "title": "Precondition failed",
    "status": 412,
    "detail": "The entity's current ETag is another",
    "kafkaErrorCode": 95,
    "kafkaErrorName": "INVALID_UPDATE_VERSION",
    "retriable": False,
    "outcome": "not_applied",
    "etag": '"a"',
}


def _client(answer: Callable[[httpx.Request], httpx.Response]) -> AsyncConfplane:
    return AsyncConfplane("http://confplane.test", token="secret", tries=1, transport=httpx.MockTransport(answer))


async def _error(response: httpx.Response) -> ProblemError:
    async with _client(lambda _: response) as client:
        with pytest.raises(ProblemError) as raised:
            await client.client_quotas.get("user=alice")
    return raised.value


async def test_a_problem_is_read() -> None:
    error = await _error(httpx.Response(412, json=PROBLEM))
    assert isinstance(error, ClientError)
    assert (error.status, error.kafka_error_code, error.retriable, error.outcome) == (412, 95, False, "not_applied")
    assert error.body["etag"] == '"a"'
    assert error.retry_after_s is None
    assert str(error) == "412 Precondition failed: The entity's current ETag is another"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("2", 2.0), ("0", 0.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("soon", None), ("-1", None), ("", None)],
)
async def test_when_to_retry(header: str, seconds: float | None) -> None:
    error = await _error(httpx.Response(503, json=PROBLEM | {"retriable": True}, headers={"Retry-After": header}))
    assert error.retriable
    assert error.retry_after_s == seconds


async def test_a_date_after_which_to_retry_is_a_time_from_now() -> None:
    date = formatdate(time.time() + 100, usegmt=True)
    error = await _error(httpx.Response(503, headers={"Retry-After": date}))
    assert error.retry_after_s is not None
    assert 0 < error.retry_after_s <= 100


@pytest.mark.parametrize("content", [b"<html>bad gateway</html>", b"", b"[1]", b'"text"', b"null", b"\xff"])
async def test_errors_of_something_in_between(content: bytes) -> None:
    error = await _error(httpx.Response(502, content=content, headers={"Content-Type": "application/json"}))
    assert error.status == 502
    assert error.kafka_error_code is None
    assert error.retriable
    assert error.body["title"] == "Bad Gateway"


@pytest.mark.parametrize("status", [400, 403, 404, 413, 500, 501])
async def test_errors_of_something_in_between_that_stay(status: int) -> None:
    assert not (await _error(httpx.Response(status, content=b"<html>"))).retriable


async def test_an_answer_is_read() -> None:
    headers = {
        "Confplane-Revision": "8589934635",
        "Confplane-Change-Id": "c-1",
        "Confplane-Stale-Ms": "12",
        "ETag": '"a"',
    }
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"id": "user=alice"}, headers=headers)

    async with _client(answer) as client:
        found: Answer[Any] = await client.client_quotas.put("user=alice", {"producer_byte_rate": 1}, if_match='"b"')
    assert found == Answer(200, {"id": "user=alice"}, 8589934635, "c-1", '"a"', 12)
    (request,) = seen
    assert request.headers["authorization"] == "Bearer secret"
    assert request.headers["if-match"] == '"b"'
    assert json.loads(request.content) == {"quotas": {"producer_byte_rate": 1}}


async def test_a_write_has_the_key_that_it_is_given() -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("idempotency-key"))
        return httpx.Response(200, json={}, headers={"Idempotency-Replayed": "true"} if seen[-1] else {})

    async with _client(answer) as client:
        quota, alice = {"producer_byte_rate": 1}, Entity.of(user="alice")
        answers: list[Answer[Any]] = [
            await client.client_quotas.put(alice, quota, idempotency_key="k1"),
            await client.client_quotas.create(alice, quota, idempotency_key="k2"),
            await client.client_quotas.delete(alice, idempotency_key="k3"),
            await client.client_quotas.alter([Change(alice, quota)], idempotency_key="k4"),
            await client.client_quotas.put(alice, quota),
        ]
    assert seen == ["k1", "k2", "k3", "k4", None]
    assert [answer.replayed for answer in answers] == [True, True, True, True, False]


@pytest.mark.parametrize(
    ("send", "path"),
    [
        (lambda c: c.client_quotas.delete("user=a/effective?x#y"), "client-quotas/user=a%2Feffective%3Fx%23y"),
        (lambda c: c.client_quotas.get("user=a%2Fb,client-id=x"), "client-quotas/user=a%2Fb,client-id=x"),
        (lambda c: c.client_quotas.revert("user=a:revert", 3), "client-quotas/user=a%3Arevert:revert"),
        (lambda c: c.client_quotas.delete(".."), "client-quotas/%2E%2E"),
        (lambda c: c.client_configs.status("user=é"), "client-configs/user=%C3%A9/status"),
        (lambda c: c.client_configs.report("user=a", "..", {}), "client-configs/user=a/instances/%2E%2E"),
        (lambda c: c.client_configs.report("user=a", "a/b", {}), "client-configs/user=a/instances/a%2Fb"),
        (lambda c: c.audit.get("../audit:revert"), "audit/..%2Faudit%3Arevert"),
        (lambda c: c.tokens.revoke("../grants/g"), "/v1/tokens/..%2Fgrants%2Fg"),
        (lambda c: c.tokens.rotate(".", overlap_s=1), "/v1/tokens/%2E:rotate"),
        (lambda c: c.grants.put("g?h", {}), "/v1/grants/g%3Fh"),
    ],
)
async def test_no_name_leads_out_of_its_place_in_a_path(send: Callable[[AsyncConfplane], Any], path: str) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={})

    async with _client(answer) as client:
        await send(client)
    base = "" if path.startswith("/") else "/v1/clusters/default/"
    assert seen[0].url.raw_path.decode() == base + path


async def test_the_resources_of_a_facet_are_those_of_its_family() -> None:
    async with _client(lambda _: httpx.Response(200, json={"id": "user=alice"})) as client:
        for family in (client.client_quotas, client.client_configs, client.configs):
            assert client.resources(family.facet) is family
        with pytest.raises(KeyError):
            client.resources("quotas")


@pytest.mark.parametrize(
    "send",
    [
        lambda client, etag: client.client_quotas.put("user=alice", {"producer_byte_rate": 1}, if_match=etag),
        lambda client, etag: client.configs.delete("topic=orders", if_match=etag),
        lambda client, etag: client.grants.delete("g", if_match=etag),
    ],
)
async def test_a_write_on_an_etag_that_a_proxy_removed_is_not_sent(send: Callable[[AsyncConfplane, Any], Any]) -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={"id": "user=alice"})

    async with _client(answer) as client:
        found = await client.client_quotas.get("user=alice")
        assert found.etag is None
        with pytest.raises(ValueError, match="if_match is None: the response that it was taken from had no ETag"):
            await send(client, found.etag)
    assert [request.method for request in sent] == ["GET"]


async def test_a_misspelt_option_is_refused() -> None:
    async with _client(lambda _: httpx.Response(200, json={})) as client:
        options: dict[str, Any] = {"validat_only": True, "reason": "r"}
        with pytest.raises(TypeError, match="unexpected keyword arguments: validat_only"):
            await client.client_quotas.put("user=alice", {}, **options)


async def test_what_users_need_of_entities_is_in_the_package() -> None:
    with pytest.raises(package.InvalidEntityError):
        package.Entity.of(user="")
    async with _client(lambda _: httpx.Response(200, json={})) as client:
        with pytest.raises(package.InvalidEntityError):
            await client.client_quotas.alter([Change("nothing=alice", {"producer_byte_rate": 1})])


def test_what_the_package_exports() -> None:
    assert sorted(package.__all__) == package.__all__
    raised = {name for name, kind in inspect.getmembers(client_errors, inspect.isclass) if issubclass(kind, Exception)}
    assert raised <= set(package.__all__)
    for name in package.__all__:
        assert inspect.getdoc(getattr(package, name))


def _quoting() -> str:
    raise ValueError("secret is no token")


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (Path("/nonexistent/token"), "the token can't be read: No such file or directory"),
        (_quoting, "the token can't be read: ValueError"),
        (lambda: None, "the token can't be read: AttributeError"),
        (lambda: "secret word", "the token is not one word of printable ASCII characters"),
        (lambda: "", "the token is not one word of printable ASCII characters"),
        ("secret\nof two lines", "the token is not one word of printable ASCII characters"),
        ("sécret", "the token is not one word of printable ASCII characters"),
    ],
)
async def test_without_a_token_nothing_is_sent_and_no_part_of_it_is_shown(token: Token, reason: str) -> None:
    def never(request: httpx.Request) -> httpx.Response:
        raise AssertionError(request)

    async with AsyncConfplane("http://confplane.test", token=token, transport=httpx.MockTransport(never)) as client:
        with pytest.raises(ClientError) as raised:
            await client.client_quotas.get("user=alice")
    assert str(raised.value) == reason
    assert "secret" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
async def test_certificates_are_verified_whatever_the_case_of_the_scheme(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []
    make = httpx.AsyncClient

    def recorded(**options: Any) -> httpx.AsyncClient:
        given.append(options["verify"])
        return make(**options)

    monkeypatch.setattr(httpx, "AsyncClient", recorded)
    async with AsyncConfplane(f"{scheme}://confplane.test", token=None):
        pass
    assert given == [True]
