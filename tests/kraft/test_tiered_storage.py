"""The rules of tiered storage decide as a real controller does, on any earlier config of a topic."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

import pytest

from confplane.domain.broker_levels import ConfigLevels
from confplane.domain.errors import InvalidConfigError
from confplane.domain.topics import check_topic
from confplane.kraft.views import ConfigResourceType, Resource
from confplane.services.ports.applying import AlterApplied, AlterRefused
from tests.support.catalogs import NEWEST
from tests.support.kraft import kraft_cluster
from tests.support.kraft_client import client_of
from tests.support.kraft_writer import KraftWriter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from confplane.kraft.client import KraftClient
    from confplane.services.ports.applying import AlterOutcome

SYSTEM: Final = {"remote.log.storage.system.enable": "true"}
LEVELS: Final = ConfigLevels(NEWEST, static=SYSTEM)
TOPICS: Final = tuple(f"tiered-{at}" for at in range(50))
SHORT, LONG = 1_000, 5_000
FLAGS: Final = ("true", "false", "TRUE", " true ", "no")
SIZES: Final = ("-3", "-2", "-1", "0", "1", "5", "10", "604800000", "604800001")
VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "remote.storage.enable": ("true", "true", *FLAGS),
    "remote.log.copy.disable": FLAGS,
    "remote.log.delete.on.disable": FLAGS,
    "local.retention.ms": SIZES,
    "local.retention.bytes": SIZES,
    "retention.ms": SIZES,
    "retention.bytes": SIZES,
    "remote.copy.lag.ms": SIZES,
    "remote.copy.lag.bytes": SIZES,
    "cleanup.policy": ("delete", "compact", "delete,compact", ""),
}


class Decisions:
    """The decisions of a controller and of the rules on the same alters.

    Args:
        client: Alters the cluster.
        seed: The seed of the alters.
    """

    def __init__(self, client: KraftClient, seed: int) -> None:
        self._client = client
        self._dice = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._configs: dict[str, dict[str, str]] = {name: {} for name in TOPICS}
        self.refused = 0

    async def compare(self, count: int) -> list[str]:
        """Return a line for each alter on which the two decide differently."""
        different: list[str] = []
        for _ in range(count // len(TOPICS)):
            alters = {name: self._alter(name) for name in TOPICS}
            sent = [(Resource(ConfigResourceType.TOPIC, name), ops) for name, ops in alters.items()]
            outcomes = await self._client.config_alters().alter(sent, lambda: time.monotonic() + 60)
            for (name, ops), outcome in zip(alters.items(), outcomes, strict=True):
                different += self._compared(name, ops, outcome)
        return different

    def _alter(self, name: str) -> dict[str, str | None]:
        keys = self._dice.sample(sorted(VALUES), self._dice.choice((1, 1, 2, 3)))
        if not self._configs[name] or self._dice.random() < 0.2:
            keys = ["remote.storage.enable", *keys]
        return {key: None if self._dice.random() < 0.25 else self._dice.choice(VALUES[key]) for key in keys}

    def _compared(self, name: str, ops: Mapping[str, str | None], outcome: AlterOutcome) -> list[str]:
        before = self._configs[name]
        after = {key: value for key, value in {**before, **ops}.items() if value is not None}
        try:
            check_topic(after, levels=LEVELS, stored=before)
            fault = ""
        except InvalidConfigError as error:
            fault = error.detail
        assert isinstance(outcome, AlterApplied | AlterRefused), outcome
        applied = isinstance(outcome, AlterApplied)
        self.refused += not applied
        if applied:
            self._configs[name] = after
        return [] if applied is not bool(fault) else [f"{before} {ops}: {outcome}, and here {fault!r}"]


async def _compare(class_path: str, directory: Path, seeds: tuple[int, ...], count: int) -> None:
    # A broker with tiered storage needs a plug-in; the rules are those of controllers.
    with kraft_cluster(directory, class_path, controllers=1, controller_properties=SYSTEM) as kraft:
        async with KraftWriter(kraft.bootstrap[0]) as writer, client_of(*kraft.bootstrap) as client:
            for seed in seeds:
                await writer.create_topics(*TOPICS)
                decisions = Decisions(client, seed)
                different = await decisions.compare(count)
                assert not different, "\n".join(different)
                assert count // 10 < decisions.refused < count * 9 // 10
                await writer.delete_topics(*TOPICS)


@pytest.mark.timeout(600)
async def test_rules_of_tiered_storage_match_those_of_a_controller(kraft_class_path: str, tmp_path: Path) -> None:
    await _compare(kraft_class_path, tmp_path, (1,), SHORT)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_rules_of_tiered_storage_on_many_alters(kraft_class_path: str, tmp_path: Path) -> None:
    await _compare(kraft_class_path, tmp_path, (2, 3), LONG)
