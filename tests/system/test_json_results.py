"""Commands on the stores with ``--json``: standard output has JSON alone, and so have errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.commands import run

if TYPE_CHECKING:
    from tests.support.service import Service


def result(service: Service, line: str, code: int = 0) -> list[dict[str, Any]]:
    """Run a command on the cluster of the service, and return the lines of its output, or of its error."""
    words = [*line.split(), "--cluster", "default", "--json"]
    said = run(words, service._environment | {"LOGNAME": "olga"})
    assert said.code == code, said
    return [json.loads(each) for each in (said.err if code else said.out).splitlines()]


def test_results_are_json(service: Service) -> None:
    [adopted] = result(service, "adopt-store --reason checked")
    assert (adopted["cluster"], adopted["adopted"], adopted["changeId"]) == ("default", False, None)
    assert result(service, "compact --older-than 7d") == []
    assert result(service, "upgrade-keys") == []
    assert result(service, "layout move --to shared") == []
    assert result(service, "secrets rotate --all") == []
    [status] = result(service, "target status")
    assert status == {"cluster": "default", "target": None, "report": None, "warnings": []}
    [report] = result(service, "rollups report --output /dev/null")
    assert report == {"output": "/dev/null", "rollups": [], "pictures": 0}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("import kip5", 2),
        ("target check", 2),
        ("target import", 2),
        ("target pause --reason drill", 2),
        ("rollups show quotas", 1),
    ],
)
def test_errors_are_json(service: Service, line: str, code: int) -> None:
    [error] = result(service, line, code)
    assert (error["exitCode"], bool(error["detail"])) == (code, True)
