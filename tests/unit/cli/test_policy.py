"""`confplane policy`: the output and the exit code for valid files, failed cases and mistakes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest
from typer.testing import CliRunner

from confplane.cli.commands import cli

if TYPE_CHECKING:
    from pathlib import Path

POLICY: Final = """\
risks: {quota_factor: 2}
rules:
  - name: calm
    match: {facets: [configs, client-quotas]}
    deny_risks: [smaller-retention, lower-quota, min-insync-replicas]
  - name: acks-stay
    match: {facets: client-configs}
    deny_removal: acks
  - name: no-passwords
    match: {types: broker}
    ranges: {"ssl.*": {min: 0}}
"""
HEAD: Final = "policy: policy.yaml\ncases:\n"
RATE = "producer_byte_rate"
CASES: Final = [
    # members of a case, the failure or None
    ("entity: topic=t, set: {retention.ms: 1}, expect: refused, rule: calm, risks: [smaller-retention]", None),
    ("entity: topic=t, set: {retention.ms: 1}, expect: allowed", "expected allowed, and the decision is rule 'calm': "),
    ("entity: topic=t, set: {retention.ms: -1}, expect: allowed, risks: []", None),
    ("entity: topic=t, set: {retention.ms: -1}, expect: refused", "expected refused, and the decision is allowed"),
    (
        "entity: topic=t, set: {retention.ms: 1}, expect: refused, rule: other",
        "expected refused by other, and the decision is rule 'calm': ",
    ),
    (
        (
            "entity: topic=t, set: {min.insync.replicas: 3}, replication_factor: 4, expect: allowed,"
            " risks: [min-insync-replicas]"
        ),
        "expected the risks min-insync-replicas, and they are none",
    ),
    ("entity: topic=t, set: {min.insync.replicas: 3}, replication_factor: 3, expect: refused", None),
    ("entity: topic=t, stored: {retention.ms: -1}, remove: [retention.ms], expect: refused, rule: calm", None),
    (
        (
            "entity: topic=t, stored: {retention.ms: -1}, remove: [retention.ms], others: {broker: {log.retention.ms: -1}},"
            " expect: allowed, risks: []"
        ),
        None,
    ),
    ("entity: broker, stored: {log.retention.ms: 2}, set: {log.retention.ms: 1}, expect: refused, rule: calm", None),
    ("entity: user=a, stored: {producer_byte_rate: 9}, set: {producer_byte_rate: 4}, expect: refused", None),
    (
        f"entity: user=a, stored: {{{RATE}: 9}}, remove: [{RATE}], others: {{user: {{{RATE}: 4}}}}, expect: refused",
        None,
    ),
    ("entity: user=a, facet: client-configs, stored: {acks: all}, remove: [acks], expect: refused", None),
    ("entity: user=a, stored: {acks: all}, remove: [acks], expect: allowed", None),
    ("entity: broker=1, set: {ssl.keystore.password: hidden}, expect: refused, rule: no-passwords", None),
]
MISTAKES: Final = [
    ("entity: topic=t, set: {retention.ms: 1}", ":3: cases[0].expect: is missing"),
    ("entity: topic=t, expect: allowed", ":3: cases[0]: changes nothing; it needs set, remove or both"),
    ("entity: topic=t, remove: [a], expect: allowed", ":3: cases[0]: removes a, which stored does not have"),
    ("entity: topic=t, stored: {a: 1}, set: {a: 2}, remove: [a], expect: allowed", ":3: cases[0]: sets and removes a"),
    ("entity: topic=t, set: {a: 1}, expect: allowed, rule: x", ":3: cases[0]: rule is the rule that refuses"),
    ("entity: topic=t, facet: client-quotas, set: {a: 1}, expect: allowed", ": topic=t has no client-quotas"),
    ("entity: table=t, set: {a: 1}, expect: allowed", ":3: cases[0].entity: "),
    ("entity: topic=t, set: {a: [1]}, expect: allowed", ":3: cases[0].set.a: must be a text, a finite number"),
    ("entity: topic=t, set: {a: 1}, expect: allowed, risks: [big]", ":3: cases[0].risks[0]: Input should be 'small"),
    ("entity: topic=t, set: {a: 1}, expect: allowed, replication_factor: 0", ":3: cases[0].replication_factor: "),
    (
        "entity: topic=t, set: {a: 1}, expect: maybe",
        ":3: cases[0].expect: Input should be 'allowed', 'refused' or 'approval'",
    ),
]


def run(*words: object) -> tuple[int, str, str]:
    answer = CliRunner().invoke(cli, ["policy", *map(str, words)])
    return answer.exit_code, answer.stdout, answer.stderr


def case(members: str) -> str:
    return f"  - {{name: it, principal: 'User:ci', {members}}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path


def test_check(folder: Path) -> None:
    path = folder / "policy.yaml"
    assert run("check", path) == (0, f"{path}: 3 rules, all valid\n", "")
    assert json.loads(run("check", path, "--json")[1])["rules"] == ["calm", "acks-stay", "no-passwords"]
    path.write_text("rules:\n  - name: a\n    deny_risk: x\n  - name: b\n    protected: no\n")
    code, out, err = run("check", path)
    assert (code, out) == (1, "")
    assert [line.split(": ")[1] for line in err.splitlines()] == ["rules[0].deny_risk", "rules[1].protected"]
    path.write_bytes(b"\xff")
    assert run("check", path) == (1, "", f"{path} is not a text file in UTF-8\n")


@pytest.mark.parametrize("words", [(), ("policy.yaml", "again"), ("absent.yaml",), (".",), ("--bad", "policy.yaml")])
@pytest.mark.parametrize("command", ["check", "test"])
def test_arguments_that_are_not_valid(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(folder)
    assert run(command, *words)[0] == 64


@pytest.mark.parametrize(("members", "failure"), CASES)
def test_a_case(folder: Path, members: str, failure: str | None) -> None:
    path = folder / "cases.yaml"
    path.write_text(HEAD + case(members))
    code, out, err = run("test", path)
    lines = out.splitlines()
    if failure is None:
        assert (code, lines, err) == (0, ["1 cases, 0 failed"], "")
    else:
        assert (code, lines[1:], err) == (1, ["1 cases, 1 failed"], "")
        assert lines[0].startswith(f"{path}:3: it: {failure}")
    [result] = [json.loads(line) for line in run("test", path, "--json")[1].splitlines()]
    assert (result["failure"] is None) == (failure is None)


@pytest.mark.parametrize(("members", "problem"), MISTAKES)
def test_a_mistake_in_a_case(folder: Path, members: str, problem: str) -> None:
    path = folder / "cases.yaml"
    path.write_text(HEAD + case(members))
    code, out, err = run("test", path)
    assert (code, out) == (1, "")
    assert problem in err


def test_a_policy_file_that_can_not_be_used(folder: Path) -> None:
    path = folder / "cases.yaml"
    path.write_text("policy: absent.yaml\ncases:\n" + case(CASES[0][0]))
    assert run("test", path) == (1, "", f"{folder / 'absent.yaml'} can't be read: No such file or directory\n")
