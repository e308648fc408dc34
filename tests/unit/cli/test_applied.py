"""``--wait-applied`` of the commands that change several entities, and of Kafka's lines, against made-up answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from confplane.cli.commands import cli

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.answers import Recorded

TAKEN = {"state": "applied", "revision": "7", "code": None, "message": None}
PENDING = {"state": "pending", "revision": None, "code": None, "message": None}
REFUSED = {"state": "refused", "revision": None, "code": 40, "message": "Invalid value"}
DIFF = [{"key": "retention.ms", "before": None, "after": "1"}]


def of_topic(name: str, applied: dict[str, Any] | None, change_id: str | None = "c") -> dict[str, Any]:
    """The result of a change of a topic, with what the cluster made of it; without an id nothing was changed."""
    result = {
        "id": f"topic={name}",
        "errorCode": 0,
        "warnings": [],
        "diff": DIFF,
        "revision": "7",
        "changeId": change_id,
        "outcome": "applied",
    }
    return result if applied is None else {**result, "applied": applied}


@pytest.mark.parametrize(
    ("applied", "code", "said"),
    [
        ((TAKEN, TAKEN), 0, ["The Kafka cluster has applied 2 of 2 changes"]),
        (
            (TAKEN, REFUSED),
            1,
            [
                "topic=b: The Kafka cluster refuses the change, which stays committed: Invalid value (code 40)",
                "The Kafka cluster has applied 1 of 2 changes",
            ],
        ),
        (
            (PENDING, TAKEN),
            1,
            [
                "topic=a: The Kafka cluster has not applied the change yet. It stays committed and is sent later",
                "The Kafka cluster has applied 1 of 2 changes",
            ],
        ),
        ((None, None), 0, []),
    ],
)
@pytest.mark.parametrize("command", ["load", "apply", "revert"])
def test_commands_on_many_entities_name_those_that_the_cluster_has_not_taken(
    answered: Recorded,
    tmp_path: Path,
    command: str,
    applied: tuple[dict[str, Any] | None, ...],
    code: int,
    said: list[str],
) -> None:
    results = [of_topic(name, each) for name, each in zip("ab", applied, strict=True)]
    if command != "revert":
        file = tmp_path / "topics.yaml"
        file.write_text("".join(f"- {{id: topic={name}, configs: {{retention.ms: '1'}}}}\n" for name in "ab"))
        words = ["load", str(file)]
        if command == "apply":
            file.write_text("apiVersion: confplane/v1\nkind: Configs\nentities: []\n")
            words = ["apply", str(file), "--yes"]
        names = ("create", "update", "delete", "claim", "none", "refused")
        change = {"id": "topic=a", "facet": "configs", "action": "create", "diff": [], "warnings": [], "mayAlter": True}
        answered.answers["plan"] = {
            "planId": "p",
            "revision": "7",
            "summary": dict.fromkeys(names, 0),
            "refusal": None,
            "changes": [{**change, "errorCode": 0}],
        }
        answered.answers["apply"] = {"runId": "r", "failed": 0, "next": None, "results": results}
    else:
        words = ["revert", "--request-id", "r", "--yes"]
        answered.answers["revert"] = {"failed": 0, "skipped": [], "results": results}
    answer = CliRunner().invoke(cli, [*words, "--wait-applied", "5000"])
    lines = [line for line in answer.stderr.splitlines() if "Kafka cluster" in line]
    assert (answer.exit_code, lines) == (code, said), answer.output
    assert answered.requests[-1].headers["Confplane-Wait-Applied"] == "5000"


@pytest.mark.parametrize(("applied", "code"), [(TAKEN, 0), (PENDING, 1), (REFUSED, 1), (None, 0)])
def test_kafkas_lines_say_what_the_cluster_made_of_an_alter(
    answered: Recorded, applied: dict[str, Any] | None, code: int
) -> None:
    answered.answers["incrementalAlter"] = {"responses": [of_topic("a", applied)]}
    line = "configs --alter --topic a --add-config retention.ms=1 --wait-applied 5000"
    answer = CliRunner().invoke(cli, line.split())
    assert (answer.exit_code, answer.stdout) == (code, "Completed updating config for topic a.\n"), answer.output
    assert ("Kafka cluster" in answer.stderr) is (applied is not None)
    [request] = answered.requests
    assert request.headers["Confplane-Wait-Applied"] == "5000"


@pytest.mark.parametrize("applied", [TAKEN, PENDING])
def test_no_line_says_that_the_cluster_applied_what_was_not_sent(answered: Recorded, applied: dict[str, Any]) -> None:
    unchanged = {**of_topic("a", applied, None), "diff": []}
    answered.answers["incrementalAlter"] = {"responses": [unchanged]}
    answered.answers["revert"] = {"failed": 0, "skipped": [], "results": [unchanged]}
    for line in (
        "configs --alter --topic a --add-config retention.ms=1",
        "set topic=a retention.ms=1",
        "revert --request-id r --yes",
    ):
        answer = CliRunner().invoke(cli, [*line.split(), "--wait-applied", "5000"])
        assert answer.exit_code == (0 if applied == TAKEN else 1), answer.output
        assert "cluster has applied" not in answer.stderr


@pytest.mark.parametrize(
    "line",
    [
        "configs --describe --topic a --wait-applied 5",
        "configs --alter --topic a --add-config retention.ms=1 --wait-applied 60001",
        "configs --alter --topic a --add-config retention.ms=1 --wait-applied -1",
        "configs --alter --topic a --add-config retention.ms=1 --wait-applied soon",
        "revert --request-id r --yes --wait-applied 60001",
        "load missing.yaml --wait-applied 60001",
    ],
)
def test_a_wait_of_another_form_is_refused_before_any_request(answered: Recorded, line: str) -> None:
    answer = CliRunner().invoke(cli, line.split())
    # Kafka's tool ends with 1 for a line that it can't read, and so do its lines here.
    assert (answer.exit_code, answered.requests) == (1 if line.startswith("configs") else 2, [])
    assert "--wait-applied" in answer.output
