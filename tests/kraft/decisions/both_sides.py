"""A service that adopted a cluster, and Kafka's own client: both decide the same cases."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from confplane.kraft.views import ConfigResourceType, Resource
from confplane.services.kraft.apply.dry_run import DryRunValidator
from confplane.services.ports.applying import AlterApplied
from tests.interop.admin import JavaCalls
from tests.interop.differential.sides import SOURCE
from tests.kraft.decisions.cases import RARE, ROUND, TOPICS, Cases
from tests.kraft.decisions.differences import MEANT, SEVERAL, UNASKED
from tests.kraft.decisions.sides import Confplane, Kafka, decisions
from tests.support.commands import Commands
from tests.support.inside import running_inside
from tests.support.java import quick_java
from tests.support.kraft_writer import KraftWriter
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from tests.kraft.decisions.cases import Case
    from tests.kraft.decisions.differences import Difference
    from tests.support.kraft import KraftCluster
    from tests.support.servers import Database


_INVALID_REQUEST: Final = 42


@dataclass(slots=True)
class Result:
    """The findings of a run."""

    cases: int = 0
    refused: int = 0
    """Cases that the cluster would refuse."""
    met: Counter[str] = field(default_factory=Counter)
    """Rows that explained differences."""
    unexplained: list[str] = field(default_factory=list)
    """A line for each difference that none explains: the codes of Kafka, of the service, and of its own rules."""
    several: list[tuple[Case, dict[int, int]]] = field(default_factory=list)
    """Cases that several faults explain, with the codes: 0 is Kafka's, 1 the service's, 2 that of its own rules."""

    def note(self, case: Case, theirs: int, ours: int, alone: int) -> None:
        """Compare the decisions on one case."""
        self.cases += 1
        self.refused += theirs != 0
        rows = _explained(case, theirs, ours, MEANT), _explained(case, theirs, alone, (*MEANT, *UNASKED))
        if None in rows:
            self.unexplained.append(f"{theirs} | {ours} | {alone}: {case.part}")
        self.met.update({row for row in rows if row})
        if SEVERAL in rows:
            codes = {0: theirs, 1: ours, 2: alone}
            self.several.append(
                (case, {side: code for side, code in codes.items() if not side or rows[side - 1] == SEVERAL})
            )


def _explained(case: Case, theirs: int, ours: int, differences: Sequence[Difference]) -> str | None:
    """Return the row that explains a difference, an empty one where there is no difference, None where none does."""
    if theirs == ours:
        return ""
    found = (each.row for each in differences if (theirs, ours) in each.codes and each.applies(case))
    return next(found, None)


class BothSides:
    """Both sides, running.

    Args:
        kafka: Decides by the cluster.
        confplane: Decides by the service.
        client: Sends requests to the service.
        writer: Writes to the cluster as an external client.
    """

    def __init__(self, kafka: Kafka, confplane: Confplane, client: httpx.AsyncClient, writer: KraftWriter) -> None:
        self._kafka = kafka
        self._confplane = confplane
        self._client = client
        self._writer = writer
        self._there: Mapping[tuple[int, str], Mapping[str, str]] = {}

    async def compare(self, seed: int, count: int) -> Result:
        """Compare the decisions on a seed's first cases, and on the rare ones."""
        cases, result = Cases(seed), Result()
        while result.cases < count:
            await self._have(cases.present())
            await self._compare([cases.next() for _ in range(min(ROUND, count - result.cases))], result)
        await self._compare(RARE, result)
        await self._have({})
        return result

    async def _compare(self, some: Sequence[Case], result: Result) -> None:
        for case, codes in zip(some, await self._decisions(some), strict=True):
            result.note(case, *codes)
        for case, found in result.several:
            result.unexplained += await self._strange(case, found)
        result.several.clear()

    async def _decisions(self, some: Sequence[Case]) -> list[tuple[int, int, int]]:
        """Return the codes of Kafka, of the service, and of its own rules alone."""
        theirs = await decisions(self._kafka.ask, some)
        ours = await decisions(self._confplane.ask, some)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DryRunValidator, "_request", _taken)
            alone = await decisions(self._confplane.ask, some)
        return list(zip(theirs, ours, alone, strict=True))

    async def _strange(self, case: Case, codes: Mapping[int, int]) -> list[str]:
        """Return a line if an alter with several faults has a code that is that of none of its parts."""
        parts = await self._decisions(case.parts)
        of_whole = {_INVALID_REQUEST} if case.repeats else set()
        strange = {side: code for side, code in codes.items() if code not in of_whole | {each[side] for each in parts}}
        return [f"{strange} is of no part, whose codes are {parts}: {case.part}"] if strange else []

    async def _have(self, configs: Mapping[tuple[int, str], Mapping[str, str]]) -> None:
        """Have exactly these configs in the cluster, and followed by the service."""
        for kind, name in {**self._there, **configs}:
            ops: dict[str, str | None] = dict.fromkeys(self._there.get((kind, name), {}))
            ops |= configs.get((kind, name), {})
            await self._writer.configs((Resource(ConfigResourceType(kind), name), ops))
        self._there = configs

        async def followed() -> bool:
            # A busy broker may not answer in time.
            answer = await self._client.get("/v1/clusters/default/configs?consistency=strong")
            assert answer.status_code in {httpx.codes.OK, httpx.codes.SERVICE_UNAVAILABLE}, answer.text
            return answer.status_code == httpx.codes.OK

        await until(followed)


async def _taken(asking: DryRunValidator, name: str, asked: list[Any]) -> None:
    """Answer for the cluster, which is not asked."""
    del asking, name
    for question in asked:
        if not question.outcome.done():
            question.outcome.set_result(AlterApplied())


@asynccontextmanager
async def run_both_sides(
    kraft: KraftCluster, class_path: str, chroot: str, database: Database, directory: Path
) -> AsyncIterator[BothSides]:
    """Run both sides until the end of the context."""
    (node,) = kraft.nodes
    secret = directory / "encoder-secret"
    secret.write_text("the encoder secret of this test")
    cluster: dict[str, Any] = {
        "client_configs_layout": "separate",
        "kafka": {"bootstrap": kraft.bootstrap},
        "password_encoder": {"secret_file": str(secret)},
        "server_properties": {str(node.node_id): str(node.properties_file)},
    }
    commands = Commands(directory, connect=chroot, dsn=database.service_dsn, cluster=cluster)
    with ExitStack() as stack:
        java = quick_java()
        log, bootstrap = directory / "rpc.log", kraft.bootstrap[0]
        rpc = stack.enter_context(JavaCalls(SOURCE, log, class_path=class_path, bootstrap=bootstrap, options=java))
        async with KraftWriter(bootstrap) as writer:
            await writer.create_topics(*TOPICS)
            try:
                for arguments in (["import", "--apply"], ["adopt", "--reason", "a test"]):
                    said = commands.run_here("target", *arguments)
                    assert said.code == 0, said
                async with running_inside(chroot, database, directory, **cluster) as inside:
                    inside.client.headers["Authorization"] = f"Bearer {inside.admin_token}"

                    async def known() -> bool:
                        answer = await inside.client.get("/v1/clusters/default")
                        return bool(answer.json()["target"]["release"])

                    await until(known)
                    yield BothSides(Kafka(rpc), Confplane(inside.client), inside.client, writer)
            finally:
                await writer.delete_topics(*TOPICS)
