"""The tasks of the caller in a cluster, as a part of the overview."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fastapi import APIRouter

from confplane.console.api import ApiRefusal
from confplane.console.change_requests import awaiting_approval, is_own
from confplane.console.page import PageDep
from confplane.console.rights import allowed, may_use
from confplane.domain.access.operations import Operation, ResourceType
from confplane.domain.change_requests import RequestKind, RequestState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.responses import Response

    from confplane.console.page import ConsolePage

router = APIRouter()

_READ: Final = 500
"""Items of each list that are read."""
_SHOWN: Final = 5
_LATE: Final = timedelta(minutes=1)
"""The delay of the end of a temporary change from which it counts as overdue, as for the service's own warning."""
_FORBIDDEN: Final = 403


class Task(NamedTuple):
    """Items that await the same action."""

    words: tuple[str, str]
    """The words for one of them, and for several."""
    kind: str
    """The kind of the items: ``request``, ``schedule`` or ``webhook``."""
    path: str
    """The page below the cluster's that lists them."""
    items: tuple[dict[str, Any], ...]


@router.get("/console/clusters/{cluster}/awaiting")
async def awaiting(page: PageDep, cluster: str) -> Response:
    """The tasks of the caller, the most urgent kind first."""
    base = f"/v1/clusters/{cluster}"
    states = (RequestState.OPEN, RequestState.FAILED, RequestState.APPROVED)
    problems: list[str] = []

    async def listed(path: str, **query: Any) -> list[dict[str, Any]]:
        try:
            found = await page.api.get(f"{base}/{path}", **query)
        except ApiRefusal as refused:
            if refused.status != _FORBIDDEN:
                problems.append(refused.detail)
            return []
        if found.get("nextPageToken") is not None:
            problems.append(f"Only the newest {_READ} {path.replace('-', ' ')} were searched.")
        items: list[dict[str, Any]] = found["items"]
        return items

    described = may_use(page.caller, cluster, ResourceType.WEBHOOKS, Operation.DESCRIBE)
    schedules, hooks, *requests = await asyncio.gather(
        listed("schedules", pageSize=_READ),
        listed("webhooks") if described else _nothing(),
        *(listed("change-requests", state=state.value, pageSize=_READ) for state in states),
    )
    tasks = [
        *_of_requests(page, cluster, *requests),
        Task(("temporary change is overdue", "temporary changes are overdue"), "schedule", "schedules",
             tuple(_overdue(page, cluster, schedules))),
        Task(("webhook is parked", "webhooks are parked"), "webhook", "webhooks",
             tuple(each for each in hooks if each["status"]["state"] == "parked")),
    ]  # fmt: skip
    tasks = [each for each in tasks if each.items]
    return page.partial(
        "awaiting.html",
        cluster=cluster,
        tasks=tasks,
        count=sum(len(each.items) for each in tasks),
        most=_SHOWN,
        problems=list(dict.fromkeys(problems)),
    )


async def _nothing() -> list[dict[str, Any]]:
    return []


def _of_requests(
    page: ConsolePage,
    cluster: str,
    opened: list[dict[str, Any]],
    failed: list[dict[str, Any]],
    approved: list[dict[str, Any]],
) -> Iterable[Task]:
    """Yield the tasks about change requests."""
    to_review = awaiting_approval(page, cluster, opened)
    glass = tuple(each for each in to_review if each["kind"] == RequestKind.BREAK_GLASS)
    proposed = tuple(each for each in to_review if each["kind"] == RequestKind.CHANGE)
    returned = tuple(each for each in opened if each["error"] and is_own(page, each))
    own_failed = tuple(each for each in failed if is_own(page, each))
    ready = tuple(each for each in approved if is_own(page, each))
    for words, path, items in (
        (("change past the rules to acknowledge", "changes past the rules to acknowledge"), "state=awaiting", glass),
        (("change request to approve", "change requests to approve"), "state=awaiting", proposed),
        (("request of mine is open again", "requests of mine are open again"), "state=open", returned),
        (("request of mine failed", "requests of mine failed"), "state=failed", own_failed),
        (("request of mine can be applied", "requests of mine can be applied"), "state=approved", ready),
    ):
        yield Task(words, "request", f"requests?{path}", items)


def _overdue(page: ConsolePage, cluster: str, schedules: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    """Yield the temporary changes that did not end at their times, and that the caller may end."""
    alterable = allowed(page.caller, cluster, Operation.ALTER_CONFIGS)
    late = datetime.now(UTC) - _LATE
    for each in schedules:
        if datetime.fromisoformat(each["revertAt"]) < late and all(one in alterable for one in each["entities"]):
            yield each
