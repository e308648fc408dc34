"""The vectors of docs/clients.md, which any client library can run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from confplane.client.dynamic import JAVA
from confplane.client.dynamic.reports import is_report_due
from confplane.client.dynamic.rules import decide, enabled
from confplane.client.dynamic.source import is_unsupported, pause_s
from confplane.domain.definitions import ConfigKind

VECTORS: Final[dict[str, Any]] = json.loads((Path(__file__).parents[3] / "vectors/clients.json").read_text())


@pytest.mark.parametrize("vector", VECTORS["decisions"], ids=lambda vector: vector["name"])
def test_decisions(vector: dict[str, Any]) -> None:
    decision = decide(ConfigKind(vector["kind"]), vector["own"], vector["dynamic"], JAVA)
    assert decision.accepted == vector["accepted"]
    assert sorted(dropped.key for dropped in decision.dropped) == vector["dropped"]
    assert all(dropped.reason and dropped.value == vector["dynamic"][dropped.key] for dropped in decision.dropped)


@pytest.mark.parametrize("vector", VECTORS["enabled"])
def test_the_switch(vector: dict[str, Any]) -> None:
    assert enabled(vector["own"]) == vector["enabled"]


@pytest.mark.parametrize("vector", VECTORS["errors"])
def test_errors_that_turn_the_poll_off(vector: dict[str, Any]) -> None:
    assert is_unsupported(vector["status"], vector["kafkaErrorCode"]) == vector["off"]


@pytest.mark.parametrize("vector", VECTORS["reports"], ids=lambda vector: vector["name"])
def test_reports_that_are_due(vector: dict[str, Any]) -> None:
    assert is_report_due(changed=vector["changed"], since_s=vector["sinceS"]) == vector["due"]


@pytest.mark.parametrize("vector", VECTORS["pauses"])
def test_pauses_between_polls(vector: dict[str, Any]) -> None:
    pauses = [
        pause_s(vector["maxAgeMs"] / 1000, vector["failures"], vector["retryAfterS"], share / 10) for share in range(11)
    ]
    assert min(pauses) == pytest.approx(vector["least"])
    assert max(pauses) == pytest.approx(vector["most"])
    assert len(set(pauses)) > 1
