"""The same alters, good and bad, sent to Kafka and to Confplane: the same error codes, but for what the page lists."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.cases import DIFFERENCES, TOPIC, broker_cases, quota_cases, topic_cases
from tests.interop.compare import new_topics, our_alter_code, our_quota_code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.interop.admin import Admin
    from tests.interop.cases import ConfigCase
    from tests.support.facets import ConfplaneClient

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

PAGE = Path(__file__).parents[2] / "docs" / "kafka-compatibility.md"
EXPLAINED_ERRORS = (
    # What the broker says of requests that it refuses, as most of these are.
    "[ConfigAdminManager[nodeId=0]: validation of configProps ",
    "[ConfigAdminManager[nodeId=0]: Error preprocessing incrementalAlterConfigs request ",
    "[Admin Manager on Broker 0]: Error processing ",
    "Modification time of key store could not be obtained: /no/such.jks",
    # What it says of those that it takes although it can't read them.
    "error processing change notification",
)


def test_every_difference_is_a_row_of_the_page() -> None:
    names = [case.name for cases in (quota_cases(), topic_cases(), broker_cases()) for case in cases]
    assert len(set(names)) == len(names)
    assert set(DIFFERENCES) <= set(names)
    first_cells = {line.split(" | ")[0].removeprefix("| ") for line in PAGE.read_text().splitlines()}
    assert {difference.row for difference in DIFFERENCES.values()} <= first_cells


async def test_quotas(client: ConfplaneClient, admin: Admin) -> None:
    found = []
    for case in quota_cases():
        for validate_only in (True, False):
            theirs_of, ours_of = (
                {kind: name and name.replace("{}", who) for kind, name in case.entity.items()}
                for who in ("kafka", "confplane")
            )
            (theirs,) = admin.alter_quotas((theirs_of, case.ops), validate_only=validate_only)
            ours, answer = await our_quota_code(client, ours_of, case.ops, validate_only=validate_only)
            found += difference(case.name, theirs["code"], ours, theirs, answer, validate_only=validate_only)
    assert found == []


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)], ids=["some validated", "all validated"])
async def test_topics(client: ConfplaneClient, admin: Admin, every: int) -> None:
    topic = f"{TOPIC}-{every}"
    await new_topics(client, admin, *(topic.replace("{}", who) for who in ("kafka", "confplane")))
    cases = (replace(case, resource=topic) if case.resource == TOPIC else case for case in topic_cases())
    assert await compared(client, admin, cases, every) == []


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.long)], ids=["half", "all"])
async def test_brokers(client: ConfplaneClient, admin: Admin, every: int) -> None:
    # None is sent that both take, so that each stands for itself.
    cases = (case for number, case in enumerate(broker_cases()) if number % every == 0 or case.name in DIFFERENCES)
    assert await compared(client, admin, cases) == []


async def compared(client: ConfplaneClient, admin: Admin, cases: Iterable[ConfigCase], every: int = 1) -> list[str]:
    """Return the differences.

    One case of every ``every`` is validated before it is sent; each case of a broker is, for what both take is not sent.
    """
    found = []
    for number, case in enumerate(cases):
        is_validated = case.kind == "BROKER" or number % every == 0
        for validate_only in (True, False) if is_validated else (False,):
            theirs = admin.alter_configs(
                case.kind, case.resource.replace("{}", "kafka"), case.ops, validate_only=validate_only
            )
            resource = case.resource.replace("{}", "confplane")
            ours, answer = await our_alter_code(client, case.kind, resource, case.ops, validate_only=validate_only)
            found += difference(case.name, theirs["code"], ours, theirs, answer, validate_only=validate_only)
            if case.kind == "BROKER" and 0 in {theirs["code"], ours}:
                break  # both have the one broker, which must not be changed here
    return found


def difference(
    name: str, theirs: int, ours: int, their_answer: object, our_answer: object, *, validate_only: bool
) -> list[str]:
    """Say what is other than expected, which is that both are the same where nothing is listed."""
    listed = DIFFERENCES.get(name)
    if (theirs, ours) == ((listed.theirs, listed.ours) if listed else (ours, ours)):
        return []
    return [f"{name}{' (validateOnly)' if validate_only else ''}: {their_answer} | {our_answer}"]
