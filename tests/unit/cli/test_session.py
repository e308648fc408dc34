"""Ends of commands over the API, against answers that are made up; tests/integration runs them on a real service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
import pytest
from typer.testing import CliRunner

from confplane.cli.commands import cli
from confplane.cli.remote import session
from confplane.client import AsyncConfplane

if TYPE_CHECKING:
    from collections.abc import Callable

    from confplane.cli.remote.profiles import Profile

    Answering = Callable[[Callable[[httpx.Request], httpx.Response]], None]

PROBLEM = {"title": "Refused", "detail": "The value is below 0", "kafkaErrorName": "INVALID_REQUEST", "errors": []}


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """Return a function that lets the next commands have made-up answers."""
    monkeypatch.setenv("CONFPLANE_URL", "http://confplane.test")

    def answer(made: Callable[[httpx.Request], httpx.Response]) -> None:
        def client(profile: Profile) -> AsyncConfplane:
            return AsyncConfplane(profile.url, token=None, tries=1, transport=httpx.MockTransport(made))

        monkeypatch.setattr(session, "client_of", client)

    return answer


async def _write(client: AsyncConfplane) -> int:
    await client.client_quotas.put("user=alice", {})
    return session.DONE


async def _read(client: AsyncConfplane) -> int:
    await client.client_quotas.describe()
    return session.DONE


def _lost(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("cut", request=request)


def _one(parameter: str) -> Callable[[httpx.Request], httpx.Response]:
    """Return the answer that refuses a parameter."""
    refused = {"detail": f"{parameter}: it is below 60", "errors": [{"pointer": parameter, "detail": "it is below 60"}]}
    return lambda _: httpx.Response(400, json=PROBLEM | refused)


def _unreachable(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


@pytest.mark.parametrize("answer", [_lost, _unreachable, lambda _: httpx.Response(502), lambda _: httpx.Response(200)])
def test_a_read_that_fails_is_no_write(
    answered: Answering, answer: Callable[[httpx.Request], httpx.Response], capsys: pytest.CaptureFixture[str]
) -> None:
    answered(answer)
    assert session.run(None, None, _read).exit_code == 1
    assert "write" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (lambda _: httpx.Response(200, json={}), 0, ""),
        (lambda _: httpx.Response(422, json=PROBLEM), 1, "The value is below 0 (INVALID_REQUEST)\n"),
        (_one("expiresIn"), 1, "--for: it is below 60 (INVALID_REQUEST)\n"),
        (_one("requestId"), 1, "REQUEST: it is below 60 (INVALID_REQUEST)\n"),
        (lambda _: httpx.Response(401, json=PROBLEM), 1, "Check the token"),
        (lambda _: httpx.Response(504, json=PROBLEM | {"outcome": "unknown"}), 3, "The value is below 0"),
        (lambda _: httpx.Response(502, text="bad gateway"), 3, "bad gateway\nThe write may or may not be applied"),
        (
            lambda _: httpx.Response(302, headers={"Location": "https://confplane.test"}),
            1,
            "Found, to https://confplane.test",
        ),
        (lambda _: httpx.Response(200, text="<html>"), 3, "is this the URL of a Confplane?"),
        (
            _lost,
            3,
            "The service did not answer: PUT http://confplane.test/v1/clusters/default/client-quotas/user=alice:",
        ),
        (_unreachable, 1, "The service did not answer: PUT http://confplane.test/v1/clusters/default/client-quotas/"),
    ],
)
def test_the_end_of_a_write(
    answered: Answering,
    answer: Callable[[httpx.Request], httpx.Response],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answered(answer)
    assert session.run(None, None, _write).exit_code == code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("nothing-set", "Nothing is set on user=alice in the cluster default\n"),
        (
            "unknown-cluster",
            "text (RESOURCE_NOT_FOUND)\n`confplane clusters` lists the clusters; --cluster names one.\n",
        ),
        ("unknown-route", "text (RESOURCE_NOT_FOUND)\nCheck the URL: `confplane profiles list` shows the profiles"),
        ("not-found", "text (RESOURCE_NOT_FOUND)\n"),
        ("unknown-topic", "text (UNKNOWN_TOPIC_OR_PARTITION)\n"),
    ],
)
def test_what_does_not_exist_is_not_an_entity_on_which_nothing_is_set(
    answered: Answering, kind: str, said: str
) -> None:
    code, name = (3, "UNKNOWN_TOPIC_OR_PARTITION") if kind == "unknown-topic" else (91, "RESOURCE_NOT_FOUND")
    problem = {"type": f"/problems/{kind}", "detail": "text", "kafkaErrorCode": code, "kafkaErrorName": name}
    answered(lambda _: httpx.Response(404, json=problem))
    found = CliRunner().invoke(cli, ["get", "user=alice"])
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr.startswith(said)


@pytest.mark.parametrize(
    ("pointers", "said"),
    [
        (["/reason"], "--reason: It is too long (INVALID_REQUEST)\n"),
        (["until"], "--until: It is too long (INVALID_REQUEST)\n"),
        (["/entries/0/configsEtag"], "--configs-etag: It is too long (INVALID_REQUEST)\n"),
        (["/entries/0/configs/2"], "It is too long (INVALID_REQUEST)\n"),
        (["/entries/7/configs/2/key"], "Item 8: It is too long (INVALID_REQUEST)\n"),
        (["/reason", "/entries/0"], "Refused (INVALID_REQUEST)\n  --reason: It is too long\n  It is too long\n"),
    ],
)
def test_a_refusal_is_shown_once_with_the_option_instead_of_a_pointer(
    answered: Answering, pointers: list[str], said: str
) -> None:
    errors = [{"pointer": pointer, "detail": "It is too long"} for pointer in pointers]
    problem = PROBLEM | {"detail": f"{pointers[0]}: It is too long", "errors": errors}
    answered(lambda _: httpx.Response(422, json=problem))
    assert CliRunner().invoke(cli, ["get", "user=alice"]).stderr == said


def test_a_frozen_cluster_is_no_unknown_error(answered: Answering) -> None:
    problem = {"type": "/problems/frozen", "detail": "It is frozen: CHG-1", "kafkaErrorName": "UNKNOWN_SERVER_ERROR"}
    answered(lambda _: httpx.Response(409, json=problem))
    assert CliRunner().invoke(cli, ["get", "user=alice"]).stderr == "It is frozen: CHG-1\n"


@pytest.mark.parametrize(
    ("line", "code", "problem"),
    [
        ("get user=alice --json", 1, PROBLEM),
        ("tokens list --json", 1, PROBLEM),
        ("drift list --json", 1, PROBLEM),
        ("get user=alice --at yesterday --json", 2, None),
        ("audit --since yesterday --json", 2, None),
        ("diff user=alice --from yesterday --json", 2, None),
    ],
)
def test_errors_of_a_command_for_programs_are_json(answered: Answering, line: str, code: int, problem: object) -> None:
    answered(lambda _: httpx.Response(422, json=PROBLEM))
    found = CliRunner().invoke(cli, line.split())
    said = json.loads(found.stderr)
    assert (found.exit_code, said["exitCode"], said.get("problem")) == (code, code, problem)
    assert ("The value is below 0 (INVALID_REQUEST)" if problem else "yesterday is not a valid") in said["detail"]


@pytest.mark.parametrize(
    "line",
    [
        "get user=alice --limit 3 --json",
        "set user=alice --json",
        "tokens create --principal User:a --expires-in 5x --json",
        "audit --limit 0 --json",
        "get --json --nosuch",
    ],
)
def test_errors_of_arguments_are_json_too(line: str) -> None:
    found = CliRunner().invoke(cli, line.split())
    said = json.loads(found.stderr)
    assert (found.exit_code, found.stdout, said["exitCode"]) == (2, "", 2)
    assert said["detail"]


def test_a_refused_argument_is_not_called_an_option(answered: Answering) -> None:
    problem = PROBLEM | {"errors": [{"pointer": "changeId", "detail": "It is not valid"}]}
    answered(lambda _: httpx.Response(400, json=problem))
    assert CliRunner().invoke(cli, ["audit", "x"]).stderr == "CHANGE: It is not valid (INVALID_REQUEST)\n"


def test_help_shows_flags_without_a_type() -> None:
    for line in ("--help", "set --help", "drift --help", "freeze --help"):
        assert "<bool>" not in CliRunner().invoke(cli, line.split(), env={"COLUMNS": "200"}).stdout


def test_a_frozen_cluster_is_no_unknown_error_of_a_revert(answered: Answering) -> None:
    result = {"errorCode": -1, "errorName": "UNKNOWN_SERVER_ERROR", "errorMessage": "It is frozen", "id": "topic=a"}
    body = {"failed": 1, "skipped": [], "results": [result | {"diff": [], "warnings": []}]}
    answered(lambda _: httpx.Response(200, json=body))
    found = CliRunner().invoke(cli, ["revert", "--request-id", "a", "--yes"])
    assert (found.exit_code, found.stderr) == (1, "Not reverted: topic=a: It is frozen\nNothing was written\n")


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize(
    ("line", "code"), [("get user=alice", 1), ("clusters", 1), ("delete user=alice --all", 1), ("tokens list", 1)]
)
def test_the_url_of_a_service_that_does_not_answer_is_shown(
    answered: Answering, line: str, code: int, options: list[str]
) -> None:
    answered(_unreachable)
    found = CliRunner().invoke(cli, [*line.split(), *options])
    said = json.loads(found.stderr)["detail"] if options else found.stderr
    assert (found.exit_code, found.stdout) == (code, "")
    assert said.startswith("The service did not answer: ")
    assert "http://confplane.test" in said
    assert "`confplane profiles list` shows the profiles and their URLs" in said
