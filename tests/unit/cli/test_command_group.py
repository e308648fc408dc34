"""Properties of every command: help with an example, results for programs, and options that are given twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from confplane.cli.command_group import SingleValueCommand
from confplane.cli.commands import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.cli.answers import Recorded


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("set user=a acks=1 --reason one --reason=two", "--reason"),
        ("set user=a acks=1 --configs-etag one --validate-only --configs-etag two", "--configs-etag"),
        ("get user=a --at 1 --at 2", "--at"),
        ("get --type user --type topic", "--type"),
        ("load FILE --cluster a --cluster b", "--cluster"),
        ("revert --request-id a --request-id b", "--request-id"),
        ("profiles set a --url http://a --url http://b", "--url"),
        ("tokens create --principal User:a --principal User:b", "--principal"),
        ("layout move --cluster a --to shared --to separate", "--to"),
        ("rollups run quotas --class-archive --no-class-archive", "--class-archive"),
    ],
)
def test_an_option_that_is_given_twice_is_refused(answered: Recorded, line: str, option: str) -> None:
    said = CliRunner().invoke(cli, line.split(), env={"COLUMNS": "200"})
    assert (said.exit_code, answered.requests) == (2, []), said.output
    assert f"Invalid value for '{option}'" in said.stderr
    assert "It is given 2 times, but takes one value." in said.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--validate-only", "--validate-only"],  # no value is lost
        ["--reason", "--ticket", "--ticket", "--reason"],  # values that look like options
    ],
)
def test_other_repetitions_are_no_options_that_are_given_twice(answered: Recorded, words: list[str]) -> None:
    result: dict[str, Any] = {"warnings": [], "diff": {"quotas": [], "configs": []}}
    answered.answers["alter"] = {"entries": [result]}
    said = CliRunner().invoke(cli, ["set", "user=a", "acks=1", *words])
    assert (said.exit_code, len(answered.requests)) == (0, 1), said.output


def test_an_option_with_a_list_may_be_repeated(answered: Recorded) -> None:
    answered.answers["revert"] = {"failed": 0, "skipped": [], "results": []}
    words = ["revert", "--request-id", "a", "--key", "b", "--key", "c", "--yes"]
    said = CliRunner().invoke(cli, words)
    assert said.exit_code == 0, said.output
    assert answered.sent[-1][1]["keys"] == ["b", "c"]


def test_a_cluster_that_is_given_without_its_option_gets_a_hint(answered: Recorded) -> None:
    said = CliRunner().invoke(cli, ["freeze", "payments", "--reason", "upgrade"], env={"COLUMNS": "200"})
    assert (said.exit_code, answered.requests) == (2, [])
    assert "freeze takes only options. A cluster is named by --cluster payments." in said.stderr
    assert CliRunner().invoke(cli, ["freeze", "payments", "--help"]).exit_code == 0


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("grants create --principal User:a --operation WRITE", "'--operation': 'WRITE' is not one of"),
        ("grants create --principal User:a --role viewer --resource user=a", "Did you mean user:a?"),
        ("grants remove user=a", "'user=a' is not an id of a grant. `confplane grants list` shows the ids."),
        ("tokens revoke User:a", "'User:a' is not an id of a token. `confplane tokens list` shows the ids."),
    ],
)
def test_an_argument_that_is_not_valid_gets_the_next_step(answered: Recorded, line: str, text: str) -> None:
    said = CliRunner().invoke(cli, line.split(), env={"COLUMNS": "400"})
    assert (said.exit_code, answered.requests) == (2, []), said.output
    assert text in said.stderr


@pytest.mark.parametrize(("name", "is_literal"), [("payments-*", True), ("*", False), ("payments-", False)])
def test_a_grant_on_a_name_that_ends_with_an_asterisk_is_warned_of(
    answered: Recorded,
    name: str,
    is_literal: bool,  # noqa: FBT001 - a column
) -> None:
    members = ("id", "principal", "permission", "cluster", "operation", "role", "resourceType", "patternType", "name")
    answered.answers["/v1/grants"] = dict.fromkeys(members, "x")
    words = ["grants", "create", "--principal", "User:a", "--operation", "ALTER_CONFIGS", "--resource", f"user:{name}"]
    said = CliRunner().invoke(cli, words)
    assert (said.exit_code, "--resource user:payments- --prefixed" in said.stderr) == (0, is_literal), said.output
    assert answered.sent[-1][1] is not None
    assert answered.sent[-1][1]["name"] == name


WITHOUT_JSON = {
    *(" configs", " shell"),  # print what Kafka's tool prints
    *(" export", " openapi"),  # print a file of another form
    *(" dev", " serve", " migrate"),  # run until a signal, or only report progress
}


def test_every_command_with_a_result_has_json() -> None:
    found = {
        name
        for name, command in _commands("", get_command(cli))
        if not any(param.name == "as_json" for param in command.params)
    }
    assert found == WITHOUT_JSON


@pytest.mark.parametrize("words", [["get", "--ab\u202e"], ["a\u202eb"], ["profiles", "a\u202eb"], ["--\x9b"]])
def test_errors_of_arguments_command_no_terminal(words: list[str]) -> None:
    said = CliRunner().invoke(cli, words)
    assert said.exit_code == 2
    assert all(each.isprintable() for each in said.output.replace("\n", ""))


def test_every_command_has_the_check() -> None:
    assert {
        name for name, command in _commands("", get_command(cli)) if not isinstance(command, SingleValueCommand)
    } == set()


def test_every_command_has_help_with_an_example() -> None:
    for name, _ in _commands("", get_command(cli)):
        said = CliRunner().invoke(cli, [*name.split(), "--help"], env={"COLUMNS": "200"}, prog_name="confplane")
        assert said.exit_code == 0, name
        assert f"confplane{name}" in said.output.partition("Example")[2], name


def test_the_help_of_all_commands_has_the_first_sentence_of_each() -> None:
    root: Any = get_command(cli)
    for name, listed in root.commands.items():
        command = root.resolve_command(None, [name])[1]
        assert listed.help == " ".join(command.help.split("\n\n")[0].split()), name


def test_a_misspelt_command_is_refused_with_a_suggestion() -> None:
    said = CliRunner().invoke(cli, ["histroy", "user=a"])
    assert said.exit_code == 2
    assert "Did you mean 'history'?" in said.stderr


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    for each in command.list_commands(None):
        yield from _commands(f"{name} {each}", command.resolve_command(None, [each])[1])
