"""Events of change requests in the feed of two services, and in webhooks."""

from __future__ import annotations

from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.client import AsyncConfplane, ProblemError
from tests.integration.test_webhooks import webhook_settings
from tests.support.feeding import one_by_one, page
from tests.support.receiver import receiving
from tests.support.reviewers import PROPOSES, REVIEWS, token_of
from tests.support.service import Service
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.support.servers import Database

RATE: Final = "producer_byte_rate"
RULES: Final = """\
rules:
  - name: two-people
    match: {names: {user: "glass-*"}}
    approvals: {count: 1, from: "User:*"}
"""
PUBLIC_URL: Final = "https://confplane.example.com"


@pytest.fixture(scope="module")
def services(
    module_chroot: str, module_database: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Service, Service]]:
    """Two services with webhooks."""
    directory = tmp_path_factory.mktemp("services")
    (directory / "policy.yaml").write_text(RULES)
    options: dict[str, Any] = {
        "cluster": {"policy_file": str(directory / "policy.yaml")},
        "connect": module_chroot,
        "dsn": module_database.service_dsn,
        "settings": webhook_settings(directory) | {"CONFPLANE_HTTP__PUBLIC_URL": PUBLIC_URL},
        "module": "tests.support.stepping",
    }
    with Service(directory, **options) as one, Service(directory, **options) as two:
        one.wait_recorded()
        yield one, two


@asynccontextmanager
async def people(
    services: tuple[Service, Service], name: str
) -> AsyncIterator[tuple[AsyncConfplane, AsyncConfplane, AsyncConfplane]]:
    """An author, a reviewer who works on the other service, and the administrator."""
    author = token_of(services[0], f"{name}-dev", PROPOSES)
    reviewer = token_of(services[1], f"{name}-ops", REVIEWS)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        one = await enter(AsyncConfplane(services[0].url, token=author))
        two = await enter(AsyncConfplane(services[1].url, token=reviewer))
        yield one, two, await enter(AsyncConfplane(services[0].url, token=services[0].token))


async def proposed(author: AsyncConfplane, user: str, value: int, **terms: Any) -> dict[str, Any]:
    edit: Any = {
        "facet": "client-quotas",
        "id": f"user={user}",
        "ops": [{"op": "SET", "key": RATE, "value": value}],
    }
    return dict((await author.change_requests.propose([edit], **terms)).body)


async def applied(author: AsyncConfplane, reviewer: AsyncConfplane, request: dict[str, Any]) -> None:
    await reviewer.change_requests.approve(request["id"], request["digest"], comment="fine")
    await author.change_requests.apply(request["id"])


async def start(service: Service, **query: str) -> str:
    answer = await page(service, **query)
    assert answer.status_code == 200, answer.text
    position: str = answer.json()["position"]
    return position


async def test_the_events_of_a_request_come_once_on_any_process(services: tuple[Service, Service]) -> None:
    """A consumer is cut off after each event, and continues at either process."""
    async with people(services, "order") as (author, reviewer, admin):
        position = await start(services[0], requests="include")
        expected = []
        for value in (1, 2, 3):
            request = await proposed(author, "order", value, reason="more load", ticket="T-1")
            await applied(author, reviewer, request)
            expected += [(request["id"], each) for each in ("proposed", "approved", "applied")]
        request = await proposed(author, "order", 9)
        revised = (await author.change_requests.revise(request["id"])).body
        await reviewer.change_requests.approve(request["id"], revised["digest"])
        await admin.client_quotas.put("user=order", {RATE: 4})
        with pytest.raises(ProblemError):
            await author.change_requests.apply(request["id"])
        await author.change_requests.revise(request["id"])
        await reviewer.change_requests.reject(request["id"], "not now")
        expected += [(request["id"], each) for each in ("proposed", "revised", "approved", "reopened")]
        expected += [(request["id"], each) for each in ("revised", "rejected")]
        found: list[dict[str, Any]] = []
        query = {"requests": "include", "prefix": "order"}
        async with aclosing(one_by_one(services, position, 7, **query)) as stream:
            async for event in stream:
                found.append(event)
                if event["type"] == "request" and event["request"]["event"] == "rejected":
                    break
    requests = [each for each in found if each["type"] == "request"]
    assert [(each["request"]["id"], each["request"]["event"]) for each in requests] == expected
    changes = [each for each in found if each["type"] == "change"]
    assert [each["entities"][0]["keys"][0]["after"] for each in changes] == [1, 2, 3, 4]
    # Each applied request follows its change.
    order = [each["request"]["event"] if each["type"] == "request" else "change" for each in found]
    assert order.index("change") < order.index("applied")
    ends = [index for index, each in enumerate(order) if each == "applied"]
    assert [order[:index].count("change") for index in ends] >= [1, 2, 3]
    first = requests[0]
    assert (first["principal"], first["reason"], first["ticket"]) == ("User:order-dev", "more load", "T-1")
    assert (first["request"]["entities"], first["request"]["author"]) == (["user=order"], "User:order-dev")
    assert requests[1]["principal"] == "User:order-ops"
    assert requests[-1]["request"]["comment"] == "not now"
    assert first["entities"] == []
    assert len({each["changeId"] for each in found}) == len(found)


async def test_now_is_after_every_event_that_any_process_has_answered(services: tuple[Service, Service]) -> None:
    async with people(services, "now") as (author, _, _):
        for value in range(5):
            await proposed(author, "now", value)
            position = await start(services[value % 2], requests="only", prefix="now")
            answer = await page(services[0], after=position, requests="only", prefix="now")
            assert answer.json()["events"] == []


async def test_break_glass_is_an_event_and_so_is_its_acknowledgement(services: tuple[Service, Service]) -> None:
    breaker = token_of(services[0], "glass-breaker", (*REVIEWS, "BYPASS_RULES"))
    async with people(services, "glass") as (_, reviewer, _), AsyncConfplane(services[0].url, token=breaker) as client:
        position = await start(services[0], requests="only")
        await client.client_quotas.put("user=glass-1", {RATE: 1}, break_glass="an outage")
        [request] = [each async for each in reviewer.change_requests.list(entity="user=glass-1")]
        await reviewer.change_requests.approve(request["id"], request["digest"])
        found: list[dict[str, Any]] = []
        query = {"requests": "only", "prefix": "glass"}
        async with aclosing(one_by_one(services, position, 3, **query)) as stream:
            async for event in stream:
                found.append(event)
                if len(found) == 2:
                    break
    assert [(each["request"]["event"], each["request"]["kind"]) for each in found] == [
        ("break-glass", "break-glass"),
        ("acknowledged", "break-glass"),
    ]
    assert found[0]["reason"] == "an outage"


async def test_reviewers_are_asked_with_a_link_and_nobody_else_is(services: tuple[Service, Service]) -> None:
    async with people(services, "chat") as (author, reviewer, admin), receiving() as receiver:
        for name, form in (("chat", "slack"), ("program", "cloudevents")):
            wanted: Any = {
                "url": receiver.url(f"/{name}"),
                "format": form,
                "filter": {"requests": "only", "prefix": "chat"},
            }
            await admin.webhooks.put(f"requests-{name}", wanted)
        request = await proposed(author, "chat", 5, reason="<!channel> *bold*")
        await applied(author, reviewer, request)
        await until(lambda: len(receiver.requests) >= 6, why=lambda: str(receiver.requests))
        of_chat = [each.body.decode() for each in receiver.requests if each.target == "/chat"]
        data = [each.json for each in receiver.requests if each.target == "/program"]
        assert [each["data"]["request"]["event"] for each in data] == ["proposed", "approved", "applied"]
        assert {(each["type"], each["subject"]) for each in data} == {("io.confplane.request", "user=chat")}
        assert "User:chat-dev asks for approval of a change of user=chat of cluster default" in of_chat[0]
        assert all(f"{PUBLIC_URL}/console/clusters/default/requests/{request['id']}" in each for each in of_chat)
        assert "&lt;!channel&gt;" in of_chat[0]
        # A reader of another entity.
        hidden = token_of(services[0], "chat-outsider", ())
        answer = await page(services[0], token=hidden, requests="only")
        assert (answer.status_code, answer.json()["events"]) == (200, [])
        for name in ("chat", "program"):
            await admin.webhooks.delete(f"requests-{name}")
