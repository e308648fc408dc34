"""Sound and unsound requests for every operation, made from the committed specification: none may end in a 5xx.

Every answer is held against the specification: status, content type, headers, body; unsound requests must be refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
import pytest_asyncio
import requests

from tests.contract.api import Sender, publish_and_configure, try_cases
from tests.support.operations import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.servers import Database
    from tests.support.service import Service

QUICK: Final = 0
LONG: Final = 800
"""Random cases per operation, besides the systematic ones."""
IN_ORDER: Final = sorted(OPERATIONS, key=lambda name: (name.startswith(("delete", "revoke")), name))
"""The order of the tests: what removes comes last, so that the rest finds what is there."""
QUICKLY: Final = [
    name
    for name in IN_ORDER
    if not (name.endswith("ClientConfigs") and name.replace("Configs", "Quotas") in OPERATIONS)
]
"""The operations of the short run: those of client configs are the same code as those of client quotas."""
SELDOM = (
    *("create", "getRollup", "rotateToken", "putGrant", "getGrant", "getAccess", "diff", "history", "revert"),
    *("applyManifest", "putWebhook", "getWebhook", "deleteWebhook", "assignWebhook", "resumeWebhook", "testWebhook"),
    *("rotateWebhookSecret", "listWebhookDeliveries", "endSchedule"),
    *("getChangeRequest", "reviseChangeRequest", "approveChangeRequest", "rejectChangeRequest"),
    *("cancelChangeRequest", "commentChangeRequest", "applyChangeRequest", "revertChangeRequest"),
)
"""Operations, by the begin of their names, that random requests seldom succeed with."""
BY_CHANCE: Final = ("deleteGrant", "listGrants")
"""Operations that succeed with a random request, and with no systematic one."""


@pytest.fixture(scope="module")
def service_options(module_database: Database, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return publish_and_configure(module_database, tmp_path_factory.mktemp("webhooks") / "key")


@pytest_asyncio.fixture(scope="module")
async def sender(service: Service) -> AsyncIterator[Sender]:
    """The sender of the cases, which counts them."""
    async with service.client() as client:
        answer = await client.put("client-quotas", "user=alice", {"producer_byte_rate": 1})
        await client.put("configs", "broker=0", {"log.retention.ms": "1000"})
    assert answer.change_id is not None
    known = {"changeId": answer.change_id}
    headers = {"Authorization": f"Bearer {service.token}"}
    async with httpx.AsyncClient(base_url=service.url, headers=headers, trust_env=False) as http:
        known["tokenId"] = (await http.post("/v1/tokens", json={"principal": "User:alice"})).json()["id"]
        grant = {"principal": "User:alice", "role": "viewer"}
        known["grantId"] = (await http.post("/v1/grants", json=grant)).json()["id"]
    with requests.Session() as session:
        session.trust_env = False
        yield Sender(known, session)


@pytest.fixture(scope="module")
def met_headers() -> set[Any]:
    """The kinds of cases of headers that were sent, of all operations."""
    return set()


@pytest.mark.parametrize("operation_id", QUICKLY)
def test_every_operation_keeps_to_the_specification(
    operation_id: str, service: Service, sender: Sender, met_headers: set[Any]
) -> None:
    random_cases = 1 if operation_id in BY_CHANCE else QUICK
    try_cases(operation_id, random_cases, lambda case: sender.send(case, service), met_headers=met_headers)


def test_the_cases_were_many_and_of_all_kinds(sender: Sender) -> None:
    if not sender.sent:
        pytest.skip("only with the test above")
    assert sender.sent.total() >= 2_000
    assert {operation for operation, _, _ in sender.sent} == {*QUICKLY}
    for operation in QUICKLY:
        found = {(mode, status // 100) for name, mode, status in sender.sent if name == operation}
        assert ("negative", 4) in found, f"{operation} never refused anything"
        # What is made from a schema at random seldom has a key that the very entity can have, a page of a run that there
        # is, or a moment that the trail knows; test_examples.py and test_answers.py have them.
        assert ("positive", 2) in found or operation.startswith(SELDOM), f"{operation} never succeeded"


@pytest.mark.long
@pytest.mark.parametrize("operation_id", IN_ORDER)
def test_every_operation_keeps_to_the_specification_at_length(
    operation_id: str, service: Service, sender: Sender
) -> None:
    try_cases(operation_id, LONG, lambda case: sender.send(case, service))


@pytest.mark.long
def test_the_long_run_was_ten_times_as_long(sender: Sender) -> None:
    if not sender.sent:
        pytest.skip("only with the test above")
    assert sender.sent.total() >= 20_000
