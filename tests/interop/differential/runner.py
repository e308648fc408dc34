"""Plays sequences to both sides, keeps their states equal where a difference is meant, and makes failures small."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.interop.differential import answers
from tests.interop.differential.allowed import BROKERS, AlterPair
from tests.interop.differential.comparison import Comparison, compare_alter, compare_describe, compare_notifications
from tests.interop.differential.generator import paths_of, sequence
from tests.interop.differential.sides import describe_broker
from tests.interop.differential.steps import STEPS, Step
from tests.interop.differential.stored import same

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.differential.sides import Confplane, Kafka
    from tests.interop.differential.steps import Body, Sequence, Tree

BOUND_S: Final = 90.0
"""Seconds until a broker's configs are effective, at most."""
_SMALL_BOUND_S: Final = 5.0
_MOST_FAILURES: Final = 10

KEPT: Final[Tree] = {
    # No quota that is tried may slow down the one who tries it.
    "users/ANONYMOUS/clients/differential": b'{"version":1,"config":{"request_percentage":"1000000.0"}}',
    "ips/127.0.0.1": b'{"version":1,"config":{"connection_creation_rate":"1000000"}}',
}
"""Entities of every sequence."""


@dataclass(slots=True)
class Played:
    """The result of a step."""

    theirs: Body
    ours: Body
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class Failure:
    """A difference that nothing explains."""

    seed: int
    step: int
    request: Step
    played: Played
    start: Tree
    """Before the step."""

    def report(self) -> str:
        """Say all that is needed to understand it."""
        return "\n".join(
            [
                f"--seed {self.seed} --step {self.step}: {self.request.method.name}",
                *(f"  start    {path} = {data!r}" for path, data in sorted(self.start.items()) if path not in KEPT),
                f"  request  {json.dumps(self.request.body)}",
                f"  Kafka    {_clipped(self.played.theirs)}",
                f"  Confplane {_clipped(self.played.ours)}",
                *(f"  differs  {line}" for line in self.played.comparison.unexplained),
            ]
        )


@dataclass(slots=True)
class Result:
    """The findings of a run."""

    cases: int = 0
    met: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def counts(self) -> str:
        """List the rows that explained differences, each after how many."""
        return "\n".join(f"  {count:6} {row}" for row, count in sorted(self.met.items()))


class Runner:
    """Plays requests to both sides.

    Args:
        kafka: The reference.
        confplane: The implementation under test.
    """

    def __init__(self, kafka: Kafka, confplane: Confplane) -> None:
        self._kafka = kafka
        self._confplane = confplane
        self._bound_s = BOUND_S

    async def run(self, seed: int, cases: int, *, told: Callable[[Result], None] = lambda _: None) -> Result:
        """Play a seed's first cases, in whole sequences; failures are made small. Stop when there are many."""
        result = Result()
        for number in range(-(-cases // STEPS)):
            await self._play_sequence(sequence(seed, number), result)
            told(result)
            if len(result.failures) >= _MOST_FAILURES:
                break
        return result

    async def replay(self, seed: int, step: int) -> Result:
        """Play the sequence of a step up to it."""
        result = Result()
        played = sequence(seed, step // STEPS)
        await self._play_sequence(played, result, last=step % STEPS)
        return result

    async def _play_sequence(self, played: Sequence, result: Result, *, last: int = STEPS) -> None:
        await self.reset(played.start)
        for index, step in enumerate(played.steps[: last + 1]):
            start = self._kafka.znodes.walk() if step.method.alters else None
            outcome = await self.play(step)
            result.cases += 1
            result.met += outcome.comparison.met
            if outcome.comparison.unexplained:
                state = start if start is not None else self._kafka.znodes.walk()
                failure = Failure(played.seed, played.number * STEPS + index, step, outcome, state)
                result.failures.append(await self._smaller(failure))
                return
        result.met += self._whole_trees()

    def _whole_trees(self) -> Counter[str]:
        theirs, ours = self._kafka.znodes.walk(), self._confplane.znodes.walk()
        unequal = [path for path in theirs.keys() | ours.keys() if not same(path, theirs.get(path), ours.get(path))]
        assert not unequal, f"differs although no step's answer did: {unequal}"
        return Counter()

    async def reset(self, start: Tree) -> None:
        """Have both sides begin from the same entities."""
        wanted = {**KEPT, **start}
        changed = self._kafka.znodes.reset(wanted) | self._confplane.znodes.reset(wanted)
        if any(path.startswith("brokers/") for path in changed):
            await self._settled()

    async def _settled(self) -> Comparison:
        """Wait until what is stored is effective on the broker, as far as its answers tell."""
        deadline = time.monotonic() + self._bound_s
        while True:
            comparison = Comparison()
            for name in ("", "0"):
                step = describe_broker(name)
                comparison.unexplained += compare_describe(step, *await self._ask(step), {}).unexplained
            if not comparison.unexplained or time.monotonic() > deadline:
                return comparison
            await asyncio.sleep(0.02)

    async def _ask(self, step: Step) -> tuple[Body, Body]:
        theirs, ours = await asyncio.gather(self._kafka.ask(step), self._confplane.ask(step))
        return theirs, ours

    async def play(self, step: Step) -> Played:
        """Send one request to both sides and compare the results."""
        if not step.method.alters:
            theirs, ours = await self._ask(step)
            return Played(theirs, ours, compare_describe(step, theirs, ours, self._kafka.znodes.walk()))
        paths = paths_of(step)
        known = {path for path in paths if path is not None}
        before = self._kafka.znodes.read(known | set(BROKERS))
        theirs, ours = await self._ask(step)
        their_news, our_news = self._kafka.znodes.news(), self._confplane.znodes.news()
        their_data, our_data = self._kafka.znodes.read(known), self._confplane.znodes.read(known)
        altered = [
            AlterPair(
                method=step.method,
                part=part,
                path=path,
                validate_only=step.body["validateOnly"],
                repeated=path is not None and paths.count(path) > 1,
                before=before.get(path or ""),
                theirs=their_code,
                ours=our_code,
                their_data=their_data.get(path or ""),
                our_data=our_data.get(path or ""),
                brokers={each: before.get(each) for each in BROKERS},
            )
            for part, path, their_code, our_code in zip(
                answers.parts(step),
                paths,
                answers.their_codes(step, theirs),
                answers.our_codes(step, ours),
                strict=True,
            )
        ]
        comparison = compare_alter(altered)
        if not comparison.unexplained:
            news = compare_notifications(altered, their_news, our_news)
            comparison.met += news.met
            comparison.unexplained += news.unexplained
        if not comparison.unexplained:
            self._reconcile(altered)
            if any(path.startswith("brokers/") for path in known):
                comparison.unexplained += (await self._settled()).unexplained
        return Played(theirs, ours, comparison)

    def _reconcile(self, altered: list[AlterPair]) -> None:
        """Have both sides store the same again: what the one that refused has, else what Kafka has."""
        refused = {each.path for each in altered if each.theirs == 0 and each.ours != 0}
        for path, (theirs, ours) in {each.path: (each.their_data, each.our_data) for each in altered}.items():
            if path is None or same(path, theirs, ours):
                continue
            if path in refused:
                self._kafka.znodes.write({path: ours})
            else:
                self._confplane.znodes.write({path: theirs})

    # ------------------------------------------------------------ small failures

    async def _smaller(self, failure: Failure) -> Failure:
        """Leave out of the state and of the request what the difference does not need."""
        self._bound_s = _SMALL_BOUND_S
        try:
            again = await self._tried(failure, failure.start, failure.request)
            if again is None:
                return failure  # it needs the steps before it
            smallest = again
            while True:
                smaller = await self._first_that_fails(smallest)
                if smaller is None:
                    return smallest
                smallest = smaller
        finally:
            self._bound_s = BOUND_S

    async def _first_that_fails(self, failure: Failure) -> Failure | None:
        for path in sorted(failure.start.keys() - KEPT.keys()):
            if path.startswith("topics/"):
                continue  # the broker has them in any case
            start = {each: data for each, data in failure.start.items() if each != path}
            if (found := await self._tried(failure, start, failure.request)) is not None:
                return found
        for body in _smaller_bodies(failure.request.body):
            request = Step(failure.request.method, body)
            if (found := await self._tried(failure, failure.start, request)) is not None:
                return found
        return None

    async def _tried(self, failure: Failure, start: Tree, request: Step) -> Failure | None:
        await self.reset(start)
        played = await self.play(request)
        if not played.comparison.unexplained:
            return None
        return Failure(failure.seed, failure.step, request, played, start)


def _smaller_bodies(value: Any) -> list[Any]:
    """Return all that is left when one element of any list inside is left out."""
    found: list[Any] = []
    if isinstance(value, list):
        found += [value[:index] + value[index + 1 :] for index in range(len(value))]
        for index, item in enumerate(value):
            found += [[*value[:index], smaller, *value[index + 1 :]] for smaller in _smaller_bodies(item)]
    elif isinstance(value, dict):
        for key, item in value.items():
            found += [{**value, key: smaller} for smaller in _smaller_bodies(item)]
    return found


def _clipped(answer: Body) -> str:
    text = json.dumps(answer)
    return text if len(text) <= 2000 else f"{text[:2000]}..."
