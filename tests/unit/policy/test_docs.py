"""docs/policies.md, run as it is printed: its rules against its table, its plug-in through its entry point."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from confplane.domain.approvals import ApprovalDemand, Globs
from confplane.domain.errors import PolicyViolationError
from confplane.domain.risks import RiskKind
from confplane.policy import load_policies, parse_policy
from confplane.policy.cases import run_cases
from confplane.settings import ClusterSettings
from tests.unit.policy.requests import install, request

if TYPE_CHECKING:
    from confplane.domain.policies import Policies

DOCS = (Path(__file__).parents[3] / "docs" / "policies.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| `(User:\w+)` \| `([\w-]+)` \| `([^`]+)` \| `([^`]+)` \| (allowed|refused by `([\w-]+)`) \|$",
    DOCS,
    re.MULTILINE,
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)


def cluster(block: str) -> dict[str, Any]:
    fields: dict[str, Any] = yaml.safe_load(block)["clusters"]["payments"]
    return fields


@pytest.fixture
def rules(tmp_path: Path) -> Policies:
    setting, file, *_ = blocks("yaml")
    path = tmp_path / "policy.yaml"
    path.write_text(file)
    return load_policies("payments", ClusterSettings.model_validate(cluster(setting) | {"policy_file": path}))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[2:4]))
def test_the_rules_answer_as_the_table_says(rules: Policies, row: tuple[str, ...]) -> None:
    principal, facet, entity, changes, answer, rule = row
    asked = request(entity, *changes.split(), principal=principal, facet=facet)
    if answer == "allowed":
        rules.check(asked)
        return
    with pytest.raises(PolicyViolationError) as caught:
        rules.check(asked)
    assert caught.value.detail.startswith(f"rule {rule!r}: ")


def test_the_table_shows_every_rule_of_the_example() -> None:
    names = {rule["name"] for rule in yaml.safe_load(blocks("yaml")[1])["rules"]}
    assert {row[5] for row in ROWS} == names | {""}
    assert len(ROWS) == DOCS.count("\n| `User:")


def test_the_example_of_risks_is_valid_and_the_tables_name_them_all() -> None:
    found = parse_policy(blocks("yaml")[2], "policy.yaml")
    denied = [set(rule.deny_risks) for rule in found.rules]
    assert set().union(*denied) == set(RiskKind)
    assert all(f"\n| `{kind.value}` | " in DOCS for kind in RiskKind)
    assert found.risks.quota_factor == 4


def test_the_example_of_approvals_is_valid_and_the_table_has_all_members() -> None:
    [topics, large, owned] = parse_policy(blocks("yaml")[3], "policy.yaml").rules
    assert (topics.approvals, large.approvals) == (
        ApprovalDemand(1, Globs(["Group:kafka-platform", "User:olga"]), Globs(["retention.*", "cleanup.policy"])),
        ApprovalDemand(2, Globs(["Group:kafka-*"]), min_entities=20),
    )
    assert topics.match.except_principals == Globs(["User:pipeline"])
    assert owned.match.owners == Globs(["payments"])
    assert all(f"\n| `{name}` | " in DOCS for name in ("count", "from", "keys", "min_entities"))


def test_the_cases_are_decided_as_printed(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(blocks("yaml")[1])
    (tmp_path / "cases.yaml").write_text(blocks("yaml")[4])
    results = list(run_cases(tmp_path / "cases.yaml"))
    assert [result.failure for result in results] == [None] * 3
    assert [result.line for result in results] == [3, 11, 18]


def test_the_plugin_works_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,), (project,) = blocks("python"), blocks("toml")
    entry_points = tomllib.loads(project)["project"]["entry-points"]["confplane.policies"]
    module = next(iter(entry_points.values())).partition(":")[0]
    assert f"`{module}.py`" in DOCS
    install(tmp_path / "site", module, source, entry_points)
    monkeypatch.syspath_prepend(tmp_path / "site")
    policies = load_policies("payments", ClusterSettings.model_validate(cluster(blocks("yaml")[-1])))
    now: dict[str, str | None] = {"retention.ms": "604800000"}
    policies.check(request("topic=t", "retention.ms=86400000", before=now))
    policies.check(request("topic=t", "retention.ms=5"))
    policies.check(request("topic=t", "-retention.ms", before=now))
    with pytest.raises(PolicyViolationError) as caught:
        policies.check(request("topic=t", "retention.ms=86399999", before=now))
    assert caught.value.detail == "keep-retention: retention.ms is 604800000 and may not shrink below 86400000"
    assert caught.value.pointer == "/ops/0"
