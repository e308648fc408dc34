"""The two decisions on a case: that of the cluster by ``validate_only``, and that of a service in front of it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from tests.interop.differential import answers
from tests.interop.differential.sides import wired
from tests.kraft.decisions.cases import step_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    import httpx

    from tests.interop.admin import JavaCalls
    from tests.interop.differential.steps import Step
    from tests.kraft.decisions.cases import Case

Codes = list[int]
_AT_ONCE: Final = 25
"""Cases in one request."""


class Kafka:
    """The decisions of a broker.

    Args:
        rpc: The running ``Rpc.java``.
    """

    def __init__(self, rpc: JavaCalls) -> None:
        self._rpc = rpc

    async def ask(self, step: Step) -> Codes:
        """Return the code of each part."""
        body = await asyncio.to_thread(self._rpc.call, step.method.api, body=wired(step))
        return answers.their_codes(step, body)


class Confplane:
    """The decisions of a service.

    Args:
        client: Sends requests to it, with the credentials of its administrator.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ask(self, step: Step) -> Codes:
        """Return the code of each part."""

        async def answered() -> Any:
            answer = await self._client.post(
                f"/v1/clusters/default/{step.method.path}",
                # Not httpx's own JSON, which has no NaN.
                content=json.dumps(step.body).encode(),
                headers={"Content-Type": "application/json"},
            )
            # A busy broker may not answer in time: such a decision is the service's alone.
            return None if b"The Kafka cluster was not asked" in answer.content else json.loads(answer.content)

        return answers.our_codes(step, await until(answered))


async def decisions(ask: Callable[[Step], Awaitable[Codes]], cases: Sequence[Case]) -> Codes:
    """Return the code of each case; cases share requests where none can spoil another."""
    found: dict[int, int] = {}
    for positions in _requests(cases):
        codes = await ask(step_of(cases[at] for at in positions))
        found.update(zip(positions, codes, strict=True))
    return [found[at] for at in range(len(cases))]


def _requests(cases: Sequence[Case]) -> Iterable[list[int]]:
    """Divide the positions of cases into requests: of one method, each entity once."""
    left = list(range(len(cases)))
    while left:
        first = cases[left[0]]
        chosen = {first.name: left[0]}
        for at in left[1:] if first.shares else ():
            each = cases[at]
            if each.method is first.method and each.shares and len(chosen) < _AT_ONCE:
                chosen.setdefault(each.name, at)
        yield list(chosen.values())
        taken = set(chosen.values())
        left = [at for at in left if at not in taken]
