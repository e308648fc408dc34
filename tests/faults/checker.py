"""The checker: holds what clients were answered, the trail in Postgres and ZooKeeper's log against each other.

It knows nothing of what Confplane did inside, and takes no time into account but that of the clients' one clock: what
was answered before a call began had happened before it, and what was begun after a call ended happened after it.
Everything is looked up by index, so that the time it takes grows with the run as n log n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.faults.checks import answers, external, feed, reads, refusals, requests, reverts, temporary, trail
from tests.faults.checks.facts import Facts

if TYPE_CHECKING:
    from tests.faults.history import Run, Violation

NOT_QUIET: Final = "work was left after the last fault"
ALARM: Final = "a process raised an alarm"

_ALARMS: Final = ("a second outcome", "have had no outcome", "no change that the audit trail knows")
"""Parts of the warnings of /readyz that report a broken promise."""


def check(run: Run) -> list[Violation]:
    """Return all that must not be; an empty list if every promise of docs/guarantees.md held.

    Raises:
        ValueError: The run can't be judged: no write of its history is found in the trail.
    """
    facts = Facts(run)
    if facts.writes and run.intents and not any(map(facts.changes_of, facts.writes)):
        raise ValueError("no intent of the trail has the request id of a call")
    if run.quiet_s is None:
        facts.add(NOT_QUIET, "see the run's logs")
    for mirror in run.mirrors:
        for warning in mirror.warnings:
            if any(text in warning for text in _ALARMS):
                facts.add(ALARM, f"process {mirror.process}: {warning}")
    tags = answers.Tags(facts)
    trail.check(facts)
    requests.check(facts)
    answers.check(facts, tags)
    refusals.check(facts, tags)
    reads.check(facts)
    external.check(facts)
    feed.check(facts)
    temporary.check(facts)
    reverts.check(facts)
    return facts.violations
