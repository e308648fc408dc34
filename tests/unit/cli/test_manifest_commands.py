"""``confplane diff`` of a manifest, and ``confplane apply`` with ``--for`` and ``--propose``, against made-up answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from typer.testing import CliRunner

from confplane.cli.commands import cli

if TYPE_CHECKING:
    from tests.unit.cli.answers import Recorded

PLAN_ID: Final = "7d2f9c0d1e3b4a6c7d8e9f00112233445566abcd"


def change(name: str, action: str, *diff: dict[str, Any], **members: Any) -> dict[str, Any]:
    """A change of a plan."""
    plain = {"facet": "configs", "pruned": False, "mayAlter": True, "errorCode": 0, "errorMessage": None, "errors": []}
    return {"id": name, "action": action, "warnings": [], "diff": list(diff), **plain, **members}


def key(name: str, before: str | None, after: str | float | None, **members: Any) -> dict[str, Any]:
    """A key before and after."""
    return {"key": name, "before": before, "after": after, **members}


def plan(*changes: dict[str, Any]) -> dict[str, Any]:
    """A plan."""
    summary = dict.fromkeys(("create", "update", "delete", "claim", "none", "refused"), 0)
    return {"planId": PLAN_ID, "revision": "7", "summary": summary, "refusal": None, "changes": list(changes)}


def applied_run(*warnings: str) -> dict[str, Any]:
    """The answer to an apply."""
    change_id = "0195f3a0-6c1e-7d3a-9b7e-2f6c1d0a4b5c"
    result = {"id": "topic=a", "changeId": change_id, "errorCode": 0, "warnings": list(warnings)}
    return {"results": [result], "failed": 0, "next": None, "runId": "r"}


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    path = tmp_path / "m.yaml"
    path.write_text("apiVersion: confplane/v1\nkind: Configs\nentities: []\n")
    return str(path)


def test_a_diff_has_the_keys_of_each_entity_before_and_after(answered: Recorded, manifest: str) -> None:
    answered.answers["plan"] = plan(
        change("topic=a", "update", key("flush.ms", "1", "2\n3"), key("flush.messages", None, "5")),
        change("topic=b", "create", key("flush.ms", None, "4")),
        change(
            "topic=c", "delete", key("flush.ms", "6", None, fallback={"value": None, "source": "broker"}), pruned=True
        ),
        change("broker=1", "update", key("ssl.key.password", None, None, secret=True, fingerprint="ab12")),
        change("topic=d", "none", key("x", None, "y"), errorCode=40, errorName="INVALID_CONFIG", errorMessage="no"),
        change("topic=e", "none", warnings=["a risk"]),
    )
    shown = CliRunner().invoke(cli, ["diff", manifest])
    assert shown.stdout.splitlines() == [
        "--- topic=a configs",
        "+++ topic=a configs",
        "-flush.ms: 1",
        "+flush.ms: 2\\n3",
        "+flush.messages: 5",
        "--- /dev/null",
        "+++ topic=b configs",
        "+flush.ms: 4",
        "--- topic=c configs",
        "+++ /dev/null",
        "-flush.ms: 6  # a value of broker takes effect",
        "--- broker=1 configs",
        "+++ broker=1 configs",
        "-ssl.key.password: (hidden)",
        "+ssl.key.password: (hidden)  # fingerprint ab12",
    ]
    assert shown.exit_code == 1  # an entity is refused
    assert "Warning: topic=e: a risk" in shown.stderr
    assert f"Plan {PLAN_ID}" in shown.stderr


@pytest.mark.parametrize(("diff", "code"), [([], 0), ([key("flush.ms", "1", "2")], 2)])
def test_the_exit_code_of_a_diff_tells_whether_there_are_changes(
    answered: Recorded, manifest: str, diff: list[dict[str, Any]], code: int
) -> None:
    answered.answers["plan"] = plan(*([change("topic=a", "update", *diff)] if diff else []))
    shown = CliRunner().invoke(cli, ["diff", manifest])
    assert (shown.exit_code, bool(shown.stdout)) == (code, bool(diff))


@pytest.mark.parametrize(
    "line",
    [
        "diff no-such-file",
        "diff user=alice",
        "diff MANIFEST --to 1h",
        "diff MANIFEST --scope topic:",
        "diff MANIFEST --force topic=a",
        "diff user=alice --from 1h --atomic",
        "diff user=alice --from 1h --env-prefix CI_",
        "apply MANIFEST --yes --for soon",
        "apply MANIFEST --yes --expires-at 2h",
        "apply MANIFEST --propose --for 6h",
        "apply MANIFEST --propose --break-glass x",
    ],
)
def test_arguments_that_are_not_valid_have_an_exit_code_of_their_own(
    answered: Recorded, manifest: str, line: str
) -> None:
    refused = CliRunner().invoke(cli, [manifest if word == "MANIFEST" else word for word in line.split()])
    assert (refused.exit_code, answered.sent) == (64, [])


@pytest.mark.usefixtures("answered")
@pytest.mark.parametrize("line", ["plan nofile --json", "apply nofile --json", "diff MANIFEST --json --profile none"])
def test_an_error_for_programs_names_the_exit_code_of_the_command(manifest: str, line: str) -> None:
    failed = CliRunner().invoke(cli, [manifest if word == "MANIFEST" else word for word in line.split()])
    assert (failed.exit_code, json.loads(failed.stderr)["exitCode"]) == (1, 1)


def test_an_entity_of_unknown_outcome_ends_an_apply_with_the_exit_code_that_its_error_names(
    answered: Recorded, manifest: str
) -> None:
    unknown: dict[str, Any] = {"id": "topic=b", "changeId": None, "errorCode": -1, "errorName": "UNKNOWN_SERVER_ERROR"}
    unknown |= {"errorMessage": "not known", "errors": [], "outcome": "unknown"}
    answered.answers["plan"] = plan(change("topic=a", "update", key("flush.ms", "1", "2")))
    answered.answers["apply"] = applied_run() | {"results": [unknown], "failed": 1}
    failed = CliRunner().invoke(cli, ["apply", manifest, "--yes", "--json"])
    assert (failed.exit_code, json.loads(failed.stderr.splitlines()[-1])["exitCode"]) == (1, 1)


def test_an_apply_for_some_time_makes_its_changes_temporary(answered: Recorded, manifest: str) -> None:
    answered.answers["plan"] = plan(change("topic=a", "update", key("flush.ms", "1", "2")))
    answered.answers["apply"] = applied_run()
    applied = CliRunner().invoke(cli, ["apply", manifest, "--yes", "--for", "6h"])
    assert (applied.exit_code, "confplane schedules list" in applied.stderr) == (0, True)
    assert [path for path, _ in answered.sent] == ["manifests:plan", "manifests:apply?expiresIn=21600"]


def test_a_plan_is_proposed_with_its_document_and_options(answered: Recorded, manifest: str) -> None:
    answered.answers["plan"] = plan(change("topic=a", "update", key("flush.ms", "1", "2")))
    answered.answers["change-requests"] = {"id": "0195f3a0-6c1e-7d3a-9b7e-2f6c1d0a4b5c", "state": "open"}
    with Path(manifest).open("a") as file:
        file.write("owner: team\n")
    options = ["--prune", "--scope", "topic:a", "--max-deletes", "3", "--force", "topic=a/flush.ms"]
    times = ["--apply-at", "2030-01-31T12:00:00Z"]
    proposed = CliRunner().invoke(cli, ["apply", manifest, "--propose", "--yes", "--reason", "load", *options, *times])
    assert (proposed.exit_code, "confplane requests show 0195f3a0" in proposed.stderr) == (0, True)
    [(_, planned), (path, body)] = answered.sent
    assert path == "change-requests?reason=load"
    assert body == {"manifest": {**planned, "planId": PLAN_ID}, "applyAt": "2030-01-31T12:00:00Z"}
    assert (planned["owner"], planned["scope"], planned["maxDeletes"]) == ("team", "topic:a", 3)


def test_the_plan_of_a_file_is_proposed_as_it_is(answered: Recorded, manifest: str, tmp_path: Path) -> None:
    answered.answers["plan"] = plan(change("topic=a", "update", key("flush.ms", "1", "2")))
    answered.answers["change-requests"] = {"id": "0195f3a0-6c1e-7d3a-9b7e-2f6c1d0a4b5c", "state": "open"}
    saved = str(tmp_path / "plan.json")
    assert CliRunner().invoke(cli, ["plan", manifest, "--atomic", "--out", saved]).exit_code == 2
    assert CliRunner().invoke(cli, ["apply", manifest, "--propose", "--plan", saved]).exit_code == 0
    [_, (path, body)] = answered.sent
    assert (path, body["manifest"]["planId"], body["manifest"]["atomic"]) == ("change-requests", PLAN_ID, True)


def test_a_plan_that_does_not_fit_into_one_transaction_is_not_proposed(answered: Recorded, manifest: str) -> None:
    refusal = {"detail": "The change makes a ZooKeeper transaction of about 2000000 bytes"}
    answered.answers["plan"] = {**plan(change("topic=a", "update", key("flush.ms", "1", "2"))), "refusal": refusal}
    refused = CliRunner().invoke(cli, ["apply", manifest, "--propose", "--yes"])
    assert (refused.exit_code, "2000000 bytes" in refused.stderr) == (1, True)
    assert [path for path, _ in answered.sent] == ["manifests:plan"]


def test_a_draft_of_a_plan_is_made(answered: Recorded, manifest: str) -> None:
    answered.answers["plan"] = plan(change("topic=a", "update", key("flush.ms", "1", "2")))
    answered.answers["change-requests"] = {"id": "0195f3a0-6c1e-7d3a-9b7e-2f6c1d0a4b5c", "state": "draft"}
    made = CliRunner().invoke(cli, ["apply", manifest, "--propose", "--draft", "--yes"])
    assert (made.exit_code, "confplane requests revise 0195f3a0" in made.stderr) == (0, True)
    assert answered.sent[-1][1]["draft"] is True


@pytest.mark.parametrize("warning", [None, "Past the rules: rule 'closed': no"])
@pytest.mark.parametrize(
    ("words", "asked"), [(["plan"], "plan"), (["apply", "--yes"], "apply"), (["apply", "--plan"], "apply")]
)
def test_a_plan_that_breaks_no_rule_says_that_nothing_was_bypassed(
    answered: Recorded, manifest: str, tmp_path: Path, words: list[str], asked: str, warning: str | None
) -> None:
    warnings = [] if warning is None else [warning]
    answered.answers["plan"] = plan(change("topic=a", "update", key("flush.ms", "1", "2"), warnings=warnings))
    answered.answers["apply"] = applied_run(*warnings)
    if words[-1] == "--plan":
        words = [*words, str(tmp_path / "plan.json")]
        assert CliRunner().invoke(cli, ["plan", manifest, "--out", words[-1]]).exit_code == 2
    for glass in ([], ["--break-glass", "an outage"]):
        answer = CliRunner().invoke(cli, [*words, manifest, *glass])
        assert answer.stderr.count("--break-glass has no effect") == (glass != [] and warning is None), answer.output
        assert answer.exit_code == (2 if asked == "plan" else 0)
        assert f"manifests:{asked}" in answered.sent[-1][0]
        assert answered.requests[-1].headers.get("Confplane-Break-Glass") == (glass[1] if glass else None)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("POLICY_VIOLATION", f"Once the errors above are resolved, plan {PLAN_ID} can be continued."),
        ("INVALID_UPDATE_VERSION", "Make a new plan of what is left."),
    ],
)
def test_a_run_that_a_changed_entity_ended_needs_a_new_plan(
    answered: Recorded, manifest: str, error: str, remedy: str
) -> None:
    refused: dict[str, Any] = {
        "id": "topic=b",
        "changeId": None,
        "errorCode": 1,
        "errorName": error,
        "errorMessage": "no",
        "errors": [],
    }
    run = applied_run()
    answered.answers["plan"] = plan(change("topic=a", "update", key("flush.ms", "1", "2")))
    answered.answers["apply"] = run | {
        "results": [*run["results"], refused], "failed": 1, "next": {"id": "topic=c", "left": 3},
    }  # fmt: skip
    said = CliRunner().invoke(cli, ["apply", manifest, "--yes"])
    assert said.exit_code == 1
    assert said.stderr.splitlines()[-1] == (
        "Not all of the plan was applied. Changes applied: 1; `confplane revert --request-id r` undoes them."
        f" Entities left: 3. {remedy}"
    )


@pytest.mark.parametrize(
    ("began", "undone"), [("r", "undoes them"), ("r-of-before", "undoes the whole run, with its earlier attempts")]
)
def test_a_continued_run_names_the_id_that_undoes_all_of_its_attempts(
    answered: Recorded, manifest: str, began: str, undone: str
) -> None:
    answers = [
        httpx.Response(200, json={**applied_run(), "runId": began, **members}, headers={"X-Request-Id": request_id})
        for request_id, members in [("r", {"next": {"id": "topic=b", "left": 1}}), ("r-of-the-next", {})]
    ]
    answered.answers["plan"] = plan(change("topic=a", "update", key("flush.ms", "1", "2")))
    answered.answers["apply"] = lambda _: answers.pop(0)
    said = CliRunner().invoke(cli, ["apply", manifest, "--yes"])
    assert said.exit_code == 0
    assert said.stdout.splitlines()[-1] == f"Changes applied: 2; `confplane revert --request-id {began}` {undone}"


def test_a_continued_run_that_is_refused_at_once_names_the_id_that_undoes_all_of_its_attempts(
    answered: Recorded, manifest: str
) -> None:
    refused: dict[str, Any] = {
        "id": "topic=b",
        "changeId": None,
        "errorCode": 42,
        "errorName": "X",
        "errorMessage": "no",
        "errors": [],
    }
    problem = {
        "type": "/problems/some-failed",
        "title": "Some entries failed",
        "status": 400,
        "detail": "no",
        "kafkaErrorCode": 42,
        "kafkaErrorName": "INVALID_REQUEST",
        "retriable": False,
        "requestId": "r-of-the-next",
        "errors": [],
        "runId": "r-of-before",
        "results": [refused],
        "failed": 1,
        "next": None,
    }
    answered.answers["plan"] = plan(change("topic=b", "update", key("flush.ms", "1", "2")))
    answered.answers["apply"] = lambda _: httpx.Response(
        400, json=problem, headers={"Content-Type": "application/problem+json"}
    )
    said = CliRunner().invoke(cli, ["apply", manifest, "--yes"])
    assert said.exit_code == 1
    assert (
        "Changes applied: 0; `confplane revert --request-id r-of-before` undoes the whole run, with its earlier attempts."
        in said.stderr
    )


def test_the_refusal_of_a_frozen_cluster_is_shown_once(answered: Recorded, manifest: str) -> None:
    frozen = {"errorCode": 42, "errorName": "INVALID_REQUEST", "errorMessage": "Cluster payments is frozen"}
    made = plan(*(change(f"topic={name}", "none", **frozen) for name in "abc"))
    made["summary"]["refused"] = 3
    answered.answers["plan"] = made
    shown = CliRunner().invoke(cli, ["plan", manifest])
    assert (shown.exit_code, shown.stderr.count("is frozen")) == (1, 1)
    assert "0 to delete, 3 refused, 0 unchanged" in shown.stdout
