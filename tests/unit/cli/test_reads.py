"""Reads that find nothing, and reads of a service without ZooKeeper, against made-up answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from typer.testing import CliRunner

from confplane.cli.commands import cli

if TYPE_CHECKING:
    from tests.unit.cli.answers import Recorded

_ENTITY: Final = "configs/topic=orders"


def test_effective_of_a_client_id_names_the_quotas_that_have_precedence(answered: Recorded) -> None:
    answered.answers["client-quotas/client-id=billing/effective"] = {"quotas": [], "warnings": []}
    answer = CliRunner().invoke(cli, ["effective", "client-id=billing"])
    assert answer.exit_code == 0
    assert "have precedence: confplane effective user=NAME,client-id=billing\n" in answer.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "No value is set for topic=orders on any level. --all includes Kafka's own defaults\n"),
        (["--all"], "No value is set for topic=orders on any level\n"),
        (["--key", "retention.mss"], "topic=orders has no effective value of retention.mss\n"),
    ],
)
def test_effective_reports_that_nothing_is_set(answered: Recorded, options: list[str], text: str) -> None:
    answered.answers[f"{_ENTITY}/effective"] = {"configs": [], "warnings": []}
    answer = CliRunner().invoke(cli, ["effective", "topic=orders", *options])
    assert (answer.exit_code, answer.stdout, answer.stderr) == (0, "", text)


@pytest.mark.parametrize(
    ("words", "path", "body"),
    [
        (["effective", "topic=orders"], f"{_ENTITY}/effective", {"configs": [], "warnings": []}),
        (["get", "topic=orders"], _ENTITY, {"configs": {"retention.ms": "1"}}),
    ],
)
@pytest.mark.parametrize("stale", [None, "23456"])
def test_reads_of_a_stale_copy_are_marked(
    answered: Recorded, words: list[str], path: str, body: dict[str, Any], stale: str | None
) -> None:
    headers = {} if stale is None else {"Confplane-Stale-Ms": stale}
    answered.answers[path] = httpx.Response(200, json=body, headers=headers)
    answer = CliRunner().invoke(cli, [*words, "--json"])
    assert answer.exit_code == 0, answer.output
    warning = "Warning: The service has not reached ZooKeeper for 23 s. Later changes are not shown\n"
    assert answer.stderr == ("" if stale is None else warning)


@pytest.mark.parametrize(
    ("principal", "hint"), [("olga", ". Principals have a type, as in User:olga"), ("User:olga", "")]
)
def test_a_search_without_results_names_the_form_of_principals(answered: Recorded, principal: str, hint: str) -> None:
    answered.answers["audit"] = {"items": [], "nextPageToken": None}
    answer = CliRunner().invoke(cli, ["audit", "--principal", principal])
    assert answer.exit_code == 0, answer.output
    assert answer.stderr == f"The trail has no such change in the cluster default{hint}\n"


def test_audit_shows_that_a_cluster_was_not_frozen_before(answered: Recorded) -> None:
    change_id = "019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"
    frozen = {"id": "cluster", "keys": ["frozen"], "ops": [], "before": {"frozen": None}, "after": {"frozen": "INC-7"}}
    names = ("revision", "createdAt", "committedAt", "principal", "reason", "ticket", "outcome", "source", "requestId")
    item = dict.fromkeys((*names, "onBehalfOf", "errorMessage"), "x")
    answered.answers[f"audit/{change_id}"] = {**item, "changeId": change_id, "kind": "change", "entities": [frozen]}
    said = CliRunner().invoke(cli, ["audit", change_id])
    assert said.stdout.splitlines()[-1].split() == ["cluster", "frozen", "(not", "set)", "INC-7"]
