"""The tasks of the caller: each kind of task with its number, for those who can do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs
from uuid import UUID

import pytest
from starlette.responses import JSONResponse

from tests.console.own_front import browser_of
from tests.console.visitor import text_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

AWAITING = "/console/clusters/default/awaiting"
ME, OTHER = "User:me", "User:other"


class MadeUpApi:
    """An API with one cluster, whose lists have what a test puts into them.

    Args:
        operations: The operations that the caller may do in the cluster.
    """

    def __init__(self, *operations: str) -> None:
        self.lists: dict[str, list[dict[str, Any]]] = {"change-requests": [], "schedules": [], "webhooks": []}
        self.refused: dict[str, int] = {}
        self.more: set[str] = set()
        self._caller = {
            "principal": ME,
            "owner": None,
            "authenticatedBy": "token",
            "grants": [
                {"id": str(UUID(int=number)), "principal": ME, "permission": "allow", "cluster": None,
                 "operation": operation, "role": None, "name": "*", "patternType": "literal",
                 "resourceType": "webhooks" if operation == "DESCRIBE" else "user"}
                for number, operation in enumerate(operations)
            ],
        }  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path"].rpartition("/")[2]
        content: Any = {"items": [{"name": "default"}]} if name == "clusters" else self._caller
        if name in self.lists:
            state = parse_qs(scope["query_string"].decode()).get("state")
            items = [each for each in self.lists[name] if state is None or each["state"] == state[0]]
            content = {"items": items, "nextPageToken": "more" if name in self.more else None}
        status = self.refused.get(name, 200)
        refusal = {"title": "Refused", "detail": f"{name} are not there"}
        await JSONResponse(content if status == 200 else refusal, status)(scope, receive, send)

    def request(self, state: str, author: str, *, kind: str = "change", error: str | None = None) -> str:
        """Add a change request, and return its id."""
        made = str(UUID(int=len(self.lists["change-requests"])))
        self.lists["change-requests"].append(
            {"id": made, "kind": kind, "state": state, "author": {"principal": author, "behalfOf": None},
             "entities": ["user=a"], "approvals": [], "createdAt": "2026-01-01T00:00:00Z", "reason": None,
             "error": error}
        )  # fmt: skip
        return made

    def schedule(self, entity: str, revert_at: str) -> None:
        """Add a temporary change."""
        self.lists["schedules"].append(
            {"changeId": str(UUID(int=1)), "principal": OTHER, "entities": [entity], "revertAt": revert_at,
             "error": "the cluster is frozen"}
        )  # fmt: skip

    async def shown(self) -> str:
        """Return the part of the overview."""
        async with browser_of(self) as browser:
            return (await browser.get(AWAITING)).text


async def test_each_kind_of_task_has_its_number() -> None:
    api = MadeUpApi("ALTER_CONFIGS", "DESCRIBE")
    theirs = [api.request("open", OTHER), api.request("open", OTHER), api.request("open", OTHER, kind="break-glass")]
    returned = api.request("open", ME, error="an entity was changed")
    fresh = api.request("open", ME)
    mine = [api.request("failed", ME, error="refused"), api.request("approved", ME), returned]
    not_mine = [api.request("failed", OTHER), api.request("approved", OTHER), fresh]
    api.schedule("user=a", "2026-01-01T00:00:00Z")
    api.schedule("user=a", "2999-01-01T00:00:00Z")
    api.schedule("topic=a", "2026-01-01T00:00:00Z")
    for name, state in (("hook-a", "parked"), ("hook-b", "active")):
        api.lists["webhooks"].append({"name": name, "status": {"state": state, "reason": "no answer"}})
    page = await api.shown()
    words = text_of(page)
    for expected in (
        "8 tasks",
        "1 change past the rules to acknowledge",
        "2 change requests to approve",
        "1 request of mine is open again",
        "an entity was changed",
        "1 request of mine failed",
        "1 request of mine can be applied",
        "1 temporary change is overdue",
        "the cluster is frozen",
        "1 webhook is parked hook-a no answer",
    ):
        assert expected in words
    assert all(f"requests/{each}" in page for each in (*theirs, *mine))
    assert not any(f"requests/{each}" in page for each in not_mine)


async def test_who_can_do_nothing_has_no_tasks() -> None:
    api = MadeUpApi("DESCRIBE_CONFIGS")
    api.request("open", OTHER)
    api.schedule("user=a", "2026-01-01T00:00:00Z")
    api.lists["webhooks"].append({"name": "hook", "status": {"state": "parked", "reason": "no answer"}})
    assert "nothing awaits you" in await api.shown()


async def test_many_tasks_are_counted_and_some_are_named() -> None:
    api = MadeUpApi("ALTER_CONFIGS")
    for _ in range(7):
        api.request("open", OTHER)
    words = text_of(await api.shown())
    assert "7 change requests to approve" in words
    assert "and 2 more" in words


@pytest.mark.parametrize(("status", "is_shown"), [(503, True), (403, False)])
async def test_what_can_not_be_read_is_named(status: int, *, is_shown: bool) -> None:
    api = MadeUpApi("ALTER_CONFIGS")
    api.refused["change-requests"] = status
    api.schedule("user=a", "2026-01-01T00:00:00Z")
    words = text_of(await api.shown())
    assert "1 temporary change is overdue" in words
    assert ("change-requests are not there" in words) == is_shown


async def test_a_search_that_does_not_reach_the_end_says_so() -> None:
    api = MadeUpApi("ALTER_CONFIGS")
    api.more.add("schedules")
    assert "Only the newest 500 schedules were searched" in text_of(await api.shown())
