"""Teams of principals: the form of their file, and rows that are kept of a run with other teams."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from confplane.domain.teams import Teams, teams
from confplane.rollups.jobs import activity
from confplane.rollups.runner import RunOptions
from tests.audit.rows import fetch, run
from tests.rollups.made import START, Made, change, reading
from tests.rollups.made import run as run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support import servers

BY_NAME = teams({"teams": {"payments": ["User:x"], "all": ["User:*"]}})
OTHERS = Teams("others", (), ())


def test_names_and_patterns_keep_the_order_of_the_file() -> None:
    given = {"teams": {"b": ["User:z*", "User:y", "User:x"], "a": ["User:*", "User:w"]}, "default": "rest"}
    assert teams(given) == Teams(
        "rest", (("b", ("User:y", "User:x")), ("a", ("User:w",))), (("User:z*", "b"), ("User:*", "a"))
    )
    assert teams({"teams": {}}) == Teams("unassigned", (), ())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "this must be a map with `teams`"),
        ([], "this must be a map with `teams`"),
        ({"teams": ["User:a"]}, "this must be a map with `teams`"),
        ({"teams": {}, "team": "a"}, "'team' is not known"),
        ({"teams": {"a": "User:a"}}, "teams.a: this must be a list of principals or patterns, such as User:payments-*"),
        ({"teams": {"a": []}}, "teams.a: this must be a list"),
        ({"teams": {"a": [1]}}, "teams.a: 1 is not a text in one line"),
        ({"teams": {"a": ["User:a\nb"]}}, "is not a text in one line"),
        ({"teams": {"": ["User:a"]}}, "a team's name: '' is not a text in one line"),
        ({"teams": {1: ["User:a"]}}, "a team's name: 1 is not"),
        ({"teams": {}, "default": None}, "default: None is not"),
        ({"teams": {"a": ["User:a"], "b": ["User:a"]}}, "teams.b: 'User:a' is in 'a' already"),
        ({"teams": {"a": ["User:a", "User:a"]}}, "teams.a: 'User:a' is in 'a' already"),
    ],
)
def test_what_is_wrong_with_a_file(given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        teams(given)


def test_days_that_are_kept_are_of_the_teams_of_this_run(spark: SparkSession, migrated: servers.Database) -> None:
    made = Made(spark, changes=[change(number) for number in range(80)])

    def found(day: int, given: Teams | None) -> tuple[Any, dict[str, Any]]:
        options = RunOptions("User:olga@cli", teams=given)
        done = run_job(
            spark, reading(made, START.replace(day=day)), SecretStr(migrated.service_dsn), activity.JOB, options
        )
        rows = fetch(
            migrated.owner_dsn,
            f"SELECT DISTINCT item ->> 'principal', item ->> 'team' FROM rollup_rows WHERE run_id = '{done.run.id}'",  # noqa: S608
        )
        return done.run, dict(rows)

    first, named = found(14, BY_NAME)
    assert named == {"User:x": "payments", "User:y": "all", "User:z": "all"}
    second, named = found(20, OTHERS)
    assert second.previous == first.id
    assert named == dict.fromkeys(("User:x", "User:y", "User:z"), "others")
    third, named = found(21, None)
    assert third.previous == second.id
    assert set(named.values()) == {None}
    # Rows of an earlier release have no error codes: nothing is built on them.
    run(migrated.owner_dsn, "UPDATE rollup_runs SET position = position - 'version'")
    fourth, _ = found(22, OTHERS)
    assert fourth.previous is None
