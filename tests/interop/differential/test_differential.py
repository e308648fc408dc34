"""Generated requests, sent to Kafka and to Confplane: the same answers and the same znodes, but for what the page lists."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.differential.allowed import ROWS
from tests.interop.differential.generator import sequence
from tests.interop.differential.steps import STEPS, Method

if TYPE_CHECKING:
    from tests.interop.differential.both_sides import BothSides
    from tests.interop.differential.runner import Result

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3600)]

PAGE = Path(__file__).parents[3] / "docs" / "kafka-compatibility.md"
SHORT = 100
LONG = 10_000
SEED = 1
"""Of the short run; the long one has the next."""
EXPLAINED_ERRORS = (
    # What the broker says of requests that it refuses, as many of these are.
    "[ConfigAdminManager[nodeId=0]: ",
    "[Admin Manager on Broker 0]: Error processing ",
    "Modification time of key store could not be obtained: ",
    "Error processing describe configs request for resource ",
    "[KafkaApi-0] Unexpected error handling request RequestHeader(apiKey=DESCRIBE_CLIENT_QUOTAS, ",
    "[KafkaApi-0] Unexpected error handling request RequestHeader(apiKey=DESCRIBE_CONFIGS, ",
    # What it says of requests that it takes although it can't use them, and of znodes that none of its own wrote.
    "error processing change notification",
    " configs could not be applied: ",
    "Per-broker configs of 0 could not be applied: ",
    "Dynamic broker config contains invalid values in: ",
    "Dynamic default cluster config contains invalid values in: ",
    "Non-dynamic configs configured in ZooKeeper will be ignored: ",
)


def test_the_differences_are_the_rows_of_the_page_that_name_this_test() -> None:
    rows = [line.removeprefix("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert {cells[0] for cells in rows if "interop/differential/test_differential" in cells[-1]} == ROWS


def test_sequences_come_from_their_seed_alone() -> None:
    assert sequence(1, 3) == sequence(1, 3)
    assert sequence(1, 3) != sequence(1, 4) != sequence(2, 4)
    methods = {step.method for number in range(SHORT // STEPS) for step in sequence(SEED, number).steps}
    assert methods == set(Method)


async def test_the_first_cases(both: BothSides) -> None:
    await played(both, SEED, SHORT)


@pytest.mark.long
async def test_many_cases(both: BothSides) -> None:
    result = await played(both, SEED + 1, LONG)
    never_met = ROWS - result.met.keys()
    assert not never_met


async def played(both: BothSides, seed: int, cases: int) -> Result:
    async with both.runner() as runner:
        result = await runner.run(seed, cases)
    sys.stdout.write(f"seed {seed}: {result.cases} cases\n{result.counts()}\n")
    assert not result.failures, "\n\n".join(failure.report() for failure in result.failures)
    assert result.cases == cases
    return result
