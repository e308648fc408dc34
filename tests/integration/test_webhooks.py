"""Webhooks on a service: what receivers get, what happens to those that fail, and what owners may see."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import httpx
import psycopg
import pytest

from confplane.client import AsyncConfplane, PreconditionFailedError, ProblemError
from confplane.domain.entities import Entity
from tests.support.receiver import OK, ReceivedRequest, Receiver, receiving
from tests.support.service import Service, ServiceInThread
from tests.support.stepping import CONSTANTS_VARIABLE
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from tests.support.commands import Said

RATE: Final = "producer_byte_rate"
KEY: Final = "a key of webhooks for tests, of no other use"
PLANTED: Final = "planted-6d1f"
CONSTANTS: Final = {
    "confplane.services.webhooks.dispatcher.INTERVAL_S": 0.1,
    "confplane.services.webhooks.dispatcher.RETRIES_S": [0.1],
    "confplane.services.upkeep.reconcile.INTERVAL_S": 0.2,
    "confplane.services.recorder.record.INTERVAL_S": 0.2,
}


def webhook_settings(directory: Path) -> dict[str, str]:
    key_file = directory / "webhooks-key"
    key_file.write_text(KEY)
    return {
        "CONFPLANE_WEBHOOKS__KEY_FILE": str(key_file),
        "CONFPLANE_WEBHOOKS__INSECURE_HTTP": "true",
        CONSTANTS_VARIABLE: json.dumps(CONSTANTS),
    }


@pytest.fixture(scope="module")
def service_options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    settings = webhook_settings(tmp_path_factory.mktemp("webhooks")) | {"CONFPLANE_LOG_LEVEL": "debug"}
    return {"settings": settings, "module": "tests.support.stepping"}


@asynccontextmanager
async def library(service: Service, token: str | None = None) -> AsyncIterator[AsyncConfplane]:
    async with AsyncConfplane(service.url, token=token or service.token) as client:
        yield client


async def put(client: AsyncConfplane, name: str, receiver: Receiver, **more: Any) -> dict[str, Any]:
    body: Any = {"url": receiver.url(f"/{name}"), **more}
    return dict((await client.webhooks.put(name, body)).body)


async def rates(client: AsyncConfplane, user: str, *values: int) -> list[str]:
    """Set the rate of a user to each value in turn, and return the ids of the changes."""
    return [str((await client.client_quotas.put(Entity.of(user=user).id, {RATE: value})).change_id) for value in values]


def ids(requests: Sequence[ReceivedRequest], kind: str = "change") -> list[str]:
    """The ids of the events, each with the first of its requests."""
    found = [request.json["data"] for request in requests]
    return list(dict.fromkeys(each["changeId"] for each in found if each["type"] == kind))


async def arrived(receiver: Receiver, count: int) -> list[ReceivedRequest]:
    await until(lambda: len(receiver.requests) >= count, why=lambda: str(receiver.requests))
    return receiver.requests


async def user_token(admin: AsyncConfplane, user: str, **grant: Any) -> tuple[str, str]:
    """Make a user with a grant and a token; return the token and its id."""
    body: Any = {"principal": f"User:{user}", "cluster": "default", **grant}
    await admin.grants.create(body)
    webhooks: Any = {"principal": f"User:{user}", "operation": "ALTER", "resourceType": "webhooks"}
    await admin.grants.create(webhooks)
    made = (await admin.tokens.create({"principal": f"User:{user}"})).body
    return made["token"], made["id"]


async def state(client: AsyncConfplane, name: str, wanted: str) -> dict[str, Any]:
    async def reached() -> Any:
        found = (await client.webhooks.get(name)).body
        return found if found["status"]["state"] == wanted else None

    return dict(await until(reached, why=f"{name} is not {wanted}"))


async def text_of(service: Service, path: str) -> str:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {service.token}"}, trust_env=False) as client:
        return (await client.get(f"{service.url}/{path}")).text


async def test_changes_arrive_in_order_as_signed_cloud_events(service: Service) -> None:
    async with receiving() as receiver, library(service) as client:
        made = await put(client, "events", receiver, filter={"user": "hook-alice"})
        changes = await rates(client, "hook-alice", 1, 2, 3)
        await rates(client, "hook-other", 1)
        requests = await arrived(receiver, 3)
        assert ids(requests) == changes
        first = requests[1]
        event = first.json
        assert first.headers["content-type"] == "application/cloudevents+json"
        assert (event["specversion"], event["type"], event["id"]) == ("1.0", "io.confplane.change", changes[1])
        assert (event["source"], event["subject"]) == ("/v1/clusters/default", "user=hook-alice")
        [key] = event["data"]["entities"][0]["keys"]
        assert (key["key"], key["before"], key["after"]) == (RATE, 1, 2)
        assert first.headers["webhook-id"] == changes[1]
        assert signatures(first) == [signed(made["secret"], first)]
        assert "secret" not in (await client.webhooks.get("events")).body

        rotated = (await client.webhooks.rotate("events", overlap_s=60)).body
        values = count(4)

        async def signed_twice() -> ReceivedRequest | None:
            await rates(client, "hook-alice", next(values))  # the leader reads the new secret within a second
            last = receiver.requests[-1]
            return last if len(signatures(last)) == 2 else None

        last = await until(signed_twice)
        assert signatures(last) == [signed(rotated["secret"], last), signed(made["secret"], last)]
        listed = [each async for each in client.webhooks.deliveries("events")]
        assert [(each["eventId"], each["status"], each["error"]) for each in listed[-3:]] == [
            (change, 204, None) for change in reversed(changes)
        ]
        await client.webhooks.delete("events")


def signatures(request: ReceivedRequest) -> list[str]:
    return request.headers["webhook-signature"].split(" ")


def signed(secret: str, request: ReceivedRequest) -> str:
    text = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return f"v1,{base64.b64encode(hmac.digest(key, text, 'sha256')).decode()}"


async def test_an_event_is_sent_again_until_it_is_taken_and_later_ones_wait(service: Service) -> None:
    async with receiving() as receiver, library(service) as client:
        answers = iter(
            [b"HTTP/1.1 500 Oops\r\n\r\n", b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n\r\n", b"nonsense"]
        )
        receiver.respond = lambda _: next(answers, OK)
        await put(client, "again", receiver, filter={"user": "hook-again"})
        changes = await rates(client, "hook-again", 1, 2)
        requests = await arrived(receiver, 5)
        sent = [request.json["id"] for request in requests]
        assert sent == [changes[0]] * 4 + [changes[1]]
        assert {request.target for request in requests} == {"/again"}
        listed = [each async for each in client.webhooks.deliveries("again")][::-1][:4]
        assert [each["attempt"] for each in listed] == [1, 2, 3, 4]
        assert [each["error"] for each in listed[:2]] == ["the receiver responded 500", "the receiver responded 302"]
        await client.webhooks.delete("again")


async def test_a_receiver_that_hangs_delays_no_other(service: Service) -> None:
    async with receiving() as hanging, receiving() as receiver, library(service) as client:
        hanging.respond = lambda _: None
        await put(client, "hangs", hanging, filter={"user": "hook-hangs"})
        await put(client, "works", receiver, filter={"user": "hook-hangs"})
        changes = await rates(client, "hook-hangs", 1, 2, 3)
        assert ids(await arrived(receiver, 3)) == changes
        await client.webhooks.delete("hangs")
        await client.webhooks.delete("works")
        assert {request.json["id"] for request in hanging.requests} <= {changes[0]}


async def test_owners_get_what_they_may_see(service: Service) -> None:
    async with receiving() as receiver, library(service) as admin:
        token, _ = await user_token(
            admin, "hook-owner", operation="DESCRIBE_CONFIGS", resourceType="user", name="hook-seen"
        )
        async with library(service, token) as owner:
            await put(owner, "seen", receiver)
            await rates(admin, "hook-hidden", 1)
            changes = await rates(admin, "hook-seen", 1)
            assert ids(await arrived(receiver, 1)) == changes
            assert b"hook-hidden" not in b"".join(request.body for request in receiver.requests)
            await owner.webhooks.delete("seen")


async def test_a_webhook_is_parked_with_the_last_token_of_its_owner_and_handed_over(service: Service) -> None:
    async with receiving() as receiver, library(service) as admin:
        token, token_id = await user_token(admin, "hook-leaver", role="viewer")
        async with library(service, token) as owner:
            await put(owner, "left", receiver, filter={"user": "hook-left"})
        await admin.tokens.revoke(token_id)
        parked = await state(admin, "left", "parked")
        assert "the last token of its owner User:hook-leaver has ended" in parked["status"]["reason"]
        [missed] = await rates(admin, "hook-left", 1)
        with pytest.raises(ProblemError, match="Hand it over"):
            await admin.webhooks.resume("left")
        warning = "Parked webhooks, which send nothing until `confplane webhooks resume`: left"

        async def warned() -> bool:
            return warning in await text_of(service, "readyz")

        await until(warned, why=warning)
        assert receiver.requests == []
        assert (await admin.webhooks.assign("left", "User:admin")).body["owner"] == "User:admin"
        await admin.webhooks.resume("left")
        assert ids(await arrived(receiver, 1)) == [missed]
        kinds = [each["kind"] async for each in admin.access.changes(subject="webhooks/default/left")]
        assert kinds == ["webhook-resumed", "webhook-assigned", "webhook-parked", "webhook-created"]
        await admin.webhooks.delete("left")


async def test_a_webhook_whose_receiver_is_gone_is_parked(service: Service) -> None:
    async with receiving() as receiver, library(service) as client:
        receiver.respond = lambda _: b"HTTP/1.1 410 Gone\r\n\r\n"
        await put(client, "gone", receiver, filter={"user": "hook-gone"})
        await rates(client, "hook-gone", 1)
        assert "410" in (await state(client, "gone", "parked"))["status"]["reason"]
        result = (await client.webhooks.test("gone")).body["delivery"]
        assert result is not None
        assert (result["eventType"], result["status"]) == ("test", 410)
        receiver.respond = lambda _: OK
        await client.webhooks.resume("gone")
        await state(client, "gone", "active")
        await arrived(receiver, 3)
        await client.webhooks.delete("gone")


async def test_etags_protect_a_webhook_and_its_url_stays(service: Service) -> None:
    async with receiving() as receiver, library(service) as client:
        first = await client.webhooks.put("tagged", {"url": receiver.url("/stays"), "note": "one"})
        assert first.status == 201
        assert first.etag is not None
        read = await client.webhooks.get("tagged")
        assert read.etag == first.etag
        assert (await client.webhooks.get.if_none_match(first.etag, "tagged")).status == 304
        second = await client.webhooks.put("tagged", {"note": "two"}, if_match=first.etag)
        assert (second.status, second.body["note"]) == (200, "two")
        assert second.etag != first.etag
        with pytest.raises(PreconditionFailedError):
            await client.webhooks.put("tagged", {"note": "three"}, if_match=first.etag)
        with pytest.raises(PreconditionFailedError):
            await client.webhooks.delete("tagged", if_match=first.etag)
        await client.webhooks.test("tagged")
        assert receiver.requests[-1].target == "/stays"
        assert [each["name"] async for each in client.webhooks.list() if each["name"] == "tagged"] == ["tagged"]
        await client.webhooks.delete("tagged")


async def test_no_more_than_ten_webhooks_of_one_owner_and_none_of_a_limited_token_or_for_a_user(
    service: Service,
) -> None:
    async with receiving() as receiver, library(service) as admin:
        token, _ = await user_token(admin, "hook-many", role="viewer")
        limited = (
            await admin.tokens.create({"principal": "User:hook-many", "narrowing": {"clusters": ["default"]}})
        ).body
        async with library(service, token) as owner, library(service, limited["token"]) as narrowed:
            with pytest.raises(ProblemError, match="is limited"):
                await put(narrowed, "many-0", receiver)
            for_user = {"Authorization": f"Bearer {service.token}", "Confplane-On-Behalf-Of": "User:hook-many"}
            async with httpx.AsyncClient(headers=for_user, trust_env=False, timeout=60) as http:
                url = f"{service.url}/v1/clusters/default/webhooks/many-0"
                refused = await http.put(url, json={"url": receiver.url("/many-0")})
            assert (refused.status_code, "without Confplane-On-Behalf-Of" in refused.json()["detail"]) == (403, True)
            for number in range(10):
                await put(owner, f"many-{number}", receiver)
            with pytest.raises(ProblemError, match="owns 10 webhooks"):
                await put(owner, "many-10", receiver)
            with pytest.raises(ProblemError, match="is limited"):
                await put(narrowed, "many-0", receiver, url=receiver.url("/another"))
            assert (await put(narrowed, "many-0", receiver, note="mine"))["note"] == "mine"
            with pytest.raises(ProblemError, match="is limited"):
                await narrowed.webhooks.rotate("many-0", overlap_s=0)
            for number in range(10):
                await owner.webhooks.delete(f"many-{number}")


async def test_nobody_gets_what_another_owner_may_see(service: Service) -> None:
    """Whoever chooses the URL of a webhook, or its owner, sees as much as the owner."""
    async with receiving() as receiver, receiving() as own, library(service) as admin:
        token, _ = await user_token(
            admin, "hook-thief", operation="DESCRIBE_CONFIGS", resourceType="user", name="hook-small"
        )
        await put(admin, "theft", receiver)
        async with library(service, token) as thief:
            with pytest.raises(ProblemError, match="may see configs that User:hook-thief may not"):
                await put(thief, "theft", receiver, note="mine")
            taken = (await thief.webhooks.assign("theft", "User:hook-thief")).body
            assert taken["owner"] == "User:hook-thief"
            with pytest.raises(ProblemError, match="may see configs that User:hook-thief may not"):
                await thief.webhooks.assign("theft", "User:admin")
            await put(thief, "theft", own, note="mine")
            seen, values = list[str](), count(1)

            async def sent() -> bool:
                value = next(values)  # until the leader knows the new URL, the events are for the old one
                await rates(admin, "hook-large", value)
                seen.extend(await rates(admin, "hook-small", value))
                return bool(own.requests)

            await until(sent)
            assert set(ids(own.requests)) <= set(seen)
            await thief.webhooks.delete("theft")


async def test_chat_messages_say_who_changed_what(service: Service) -> None:
    async with receiving() as receiver, library(service) as client:
        for form in ("slack", "teams"):
            made = await put(client, f"chat-{form}", receiver, format=form, filter={"user": "hook-chat"})
            assert "secret" not in made
        await client.client_quotas.put("user=hook-chat", {RATE: 5}, reason="<!channel> *bold*", ticket="T-7")
        requests = {request.target: request for request in await arrived(receiver, 2)}
        for target in ("/chat-slack", "/chat-teams"):
            text = requests[target].body.decode()
            for part in ("User:admin changed user=hook-chat of cluster default", RATE, "not set → 5", "Ticket: T-7"):
                assert part in text
            assert "webhook-signature" not in requests[target].headers
        assert "&lt;!channel&gt;" in requests["/chat-slack"].json["text"]
        await client.webhooks.delete("chat-slack")
        await client.webhooks.delete("chat-teams")


async def test_a_secret_of_a_url_is_shown_nowhere(service: Service, module_database: Any) -> None:
    async with receiving() as receiver, library(service) as client:
        receiver.respond = lambda _: b"HTTP/1.1 500 " + PLANTED.encode() + b"\r\n\r\n" + PLANTED.encode()
        url = receiver.url(f"/{PLANTED}?{PLANTED}").replace("http://", f"http://{PLANTED}:{PLANTED}@")
        made = (await client.webhooks.put("planted", {"url": url, "filter": {"user": "hook-planted"}})).body
        secret = made.pop("secret")
        await rates(client, "hook-planted", 1)
        await state(client, "planted", "failing")
        shown = [made, (await client.webhooks.get("planted")).body, (await client.webhooks.test("planted")).body]
        shown += [each async for each in client.webhooks.deliveries("planted")]
        shown += [each async for each in client.webhooks.list()]
        refused = []
        for bad in (f"ftp://a.example.com/{PLANTED}", f"https://10.0.0.1/{PLANTED}", f"https://{PLANTED}@/x"):
            with pytest.raises(ProblemError) as caught:
                await client.webhooks.put("planted", {"url": bad})
            refused.append(caught.value.body)
        await client.webhooks.delete("planted")
        shown += [each async for each in client.access.changes()]
        pages = [await text_of(service, path) for path in ("metrics", "readyz")]
        assert receiver.requests[0].target == f"/{PLANTED}?{PLANTED}"
        everything = [
            json.dumps(shown),
            json.dumps(refused),
            *pages,
            service.log.read_text(),
            dump(module_database.owner_dsn),
        ]
        for text in everything:
            for word in (PLANTED, PLANTED.encode().hex(), secret, secret.encode().hex()):
                assert word not in text


def dump(dsn: str) -> str:
    """All rows of all tables as text."""
    with psycopg.connect(dsn) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert ("webhooks",) in tables
        rows = [connection.execute(f"SELECT each::text FROM {name} AS each").fetchall() for (name,) in tables]  # noqa: S608 - names of tables
    return str(rows)


async def test_a_process_without_the_key_is_ready_and_warns_of_webhooks(
    service: Service, module_chroot: str, module_database: Any, tmp_path: Path
) -> None:
    async with library(service) as client, receiving() as receiver:
        await put(client, "keyless", receiver)
        with ServiceInThread(tmp_path, connect=module_chroot, dsn=module_database.service_dsn) as other:
            named = await until(partial(_warning, other, {"Authorization": f"Bearer {other.token}"}))
            assert "keyless" in named
            assert "keyless" not in await until(partial(_warning, other, {}))
            with pytest.raises(ProblemError, match=r"webhooks\.key_file"):
                async with library(other) as elsewhere:
                    await put(elsewhere, "second", receiver)
        await client.webhooks.delete("keyless")


async def _warning(service: Service, headers: dict[str, str]) -> str | None:
    async with httpx.AsyncClient(headers=headers, trust_env=False) as client:
        answer = await client.get(f"{service.url}/readyz")
    assert answer.status_code == 200
    return next((each for each in answer.json()["warnings"] if "webhooks.key_file" in each), None)


async def test_the_command_line_creates_shows_tests_and_deletes(
    run: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    async def said(*arguments: str) -> str:
        answer = await asyncio.to_thread(run, "webhooks", *arguments, "--cluster", "default")
        assert answer.code == 0, answer
        return answer.out

    async with receiving() as receiver:
        file = tmp_path / "url"
        file.write_text(receiver.url(f"/{PLANTED}"))
        assert (await said("put", "cli", "--url-file", str(file), "--user", "hook-cli")).startswith("whsec_")
        assert "Delivered" in await said("test", "cli")
        listed = await said("list")
        assert "user=hook-cli" in listed
        assert PLANTED not in listed + await said("show", "cli")
        assert "204" in await said("deliveries", "cli")
        assert (await said("rotate", "cli", "--overlap", "1h")).startswith("whsec_")
        await said("resume", "cli")
        await said("assign", "cli", "--owner", "User:admin")
        await said("delete", "cli")
