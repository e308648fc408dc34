"""Files of ``confplane load``: their reading in pieces, and the reasons for which a file is refused."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from confplane.cli.commands import cli
from confplane.cli.remote.load_commands import check, pieces
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.strict_yaml import Dumper

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.answers import Recorded


def test_entities_have_their_lines_values_and_secrets() -> None:
    text = (
        b"---\n# A comment.\n\n- id: user=alice\n  client-quotas: {producer_byte_rate: 1, request_percentage: 0.5}\n"
        b"  # Another.\n\n# One more.\n-\n  id: broker\n  configs:\n    a: ''\n    ssl.key.password: null\n\r\n- id: topic=t\n"
    )
    [piece] = pieces(io.BytesIO(text), "FILE")
    assert [(each.place, each.entity.id, each.values, each.secrets) for each in piece] == [
        (
            "FILE, line 4, column 3",
            "user=alice",
            {FacetName.CLIENT_QUOTAS: {"producer_byte_rate": 1, "request_percentage": 0.5}},
            0,
        ),
        ("FILE, line 10, column 3", "broker", {FacetName.CONFIGS: {"a": ""}}, 1),
        ("FILE, line 15, column 3", "topic=t", {}, 0),
    ]


@pytest.mark.parametrize("text", [b"", b"[]\n", b"# Nothing.\n---\n", b"--- []"])
def test_a_file_may_have_no_entity(text: bytes) -> None:
    assert list(pieces(io.BytesIO(text), "FILE")) == []


def test_a_piece_has_a_bounded_number_of_entities_and_bytes() -> None:
    stream = io.BytesIO(b"".join(b"- id: user=u%d\n" % number for number in range(1_201)))
    assert [len(piece) for piece in pieces(stream, "FILE")] == [500, 500, 201]
    value = b"x" * 300_000
    stream = io.BytesIO(b"".join(b"- {id: topic=t%d, configs: {a: %s}}\n" % (number, value) for number in range(7)))
    assert [len(piece) for piece in pieces(stream, "FILE")] == [3, 3, 1]


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("a: b", (1, 1), "the file is not a list"),
        ("- id: user=a\nb: c", (2, 1), "did not find expected '-' indicator"),
        ("- user=a", (1, 3), "an entity has an id"),
        ("- id: 5", (1, 3), "an entity has an id"),
        ("- id: user=a b", (1, 3), "'user=a b' is not an entity id"),
        ("- id: user=a\n  configs: {a: b}", (2, 3), "user=a has client-quotas and client-configs"),
        ("- id: topic=a\n  client-quotas: {a: 1}", (2, 3), "topic=a has configs, each with keys and values"),
        ("- id: topic=a\n  configs: [a]", (2, 3), "topic=a has configs"),
        ("- id: topic=a\n  configs: {1: a}", (2, 13), "a key must be text"),
        ("\n- id: topic=a\n  configs: {a: 5}", (3, 13), "the value of a is not text; put it in quotes"),
        ("- id: topic=a\n  configs: {a: 1e6}", (2, 13), "the value of a is not text; put it in quotes"),
        ("- id: topic=a\n  configs: {a: true}", (2, 13), "the value of a is not text; put it in quotes"),
        ("- id: topic=a\n  configs: {a: [b]}", (2, 13), "the value of a is not text; put it in quotes"),
        ("- id: user=a\n  client-quotas: {a: '1'}", (2, 19), "the value of a is not a number"),
        ("- id: user=a\n  client-quotas: {a: true}", (2, 19), "the value of a is not a number"),
        ("- id: user=a\n  client-quotas: {a: null}", (2, 19), "the value of a is not a number"),
    ],
)
def test_a_file_of_another_form_is_refused_with_the_place(text: str, place: tuple[int, int], reason: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        list(pieces(io.BytesIO(text.encode()), "FILE"))
    assert str(refused.value).startswith(f"FILE, line {place[0]}, column {place[1]}: {reason}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        # A repeated key, a repeated block, and an entity twice.
        (
            "- id: user=a\n  client-quotas:\n    producer_byte_rate: 1\n    producer_byte_rate: 2\n",
            "line 4, column 5: the key 'producer_byte_rate' occurs twice: here and in line 3",
        ),
        (
            "- id: user=a\n  client-quotas: {producer_byte_rate: 1}\n"
            + "".join(f"- id: user=u{number}\n" for number in range(500))
            + "- id: user=a\n  client-quotas: {producer_byte_rate: 2}\n",
            "line 503, column 3: user=a occurs twice: here and in line 1",
        ),
        ("- id: topic=a\n- id: topic=a\n", "line 2, column 3: topic=a occurs twice: here and in line 1"),
        ("[{id: topic=a}, {id: topic=a}]", "line 1, column 17: topic=a occurs twice: here and in line 1"),
        ("- id: user=a\n- id: user%3Da\n", "line 2, column 3: user=a occurs twice: here and in line 1"),
        # Null for a key that is not a secret.
        ("- id: topic=a\n  configs: {retention.ms: null}\n", "line 2, column 13: retention.ms is not a secret"),
        ("- id: broker=1\n  configs: {background.threads: null}\n", "line 2, column 13: background.threads is not a"),
        ("- id: user=a\n  client-configs: {acks: null}\n", "line 2, column 20: acks is not a secret"),
        # Ids that the service would refuse halfway through the load.
        ("- id: ip=~3A~3A1\n", "line 1, column 3: '::1' is not an IPv4 address"),
        ("- id: topic\n  configs: {a: b}\n", "line 1, column 3: Default topic resources are not allowed"),
        ("- {id: broker=00}\n", "line 1, column 4: 'broker=00' is not an entity id"),
        ("- {id: user=}\n", "line 1, column 4: 'user=' is not an entity id"),
        ("- id: client-id=app,user\n", "line 1, column 3: 'client-id=app,user' is not an entity id"),
    ],
)
def test_a_file_that_would_lose_or_change_data_is_refused_before_any_request(
    answered: Recorded, tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    said = CliRunner().invoke(cli, ["load", str(file)])
    assert (said.exit_code, said.stdout, answered.requests) == (2, "", [])
    assert said.stderr.startswith(f"Nothing was loaded. {file}, {reason}")


def test_warnings_of_the_service_are_printed_with_their_place(answered: Recorded, tmp_path: Path) -> None:
    result = {"errorCode": 0, "warnings": ["No broker config has the name a"], "diff": [], "outcome": None}
    answered.answers["incrementalAlter"] = {"responses": [{**result, "warnings": []}, result]}
    file = tmp_path / "file.yaml"
    file.write_text("- {id: broker=1, configs: {b: c}}\n- {id: broker=2, configs: {a: b}}\n")
    said = CliRunner().invoke(cli, ["load", str(file)])
    assert said.exit_code == 0
    assert said.stderr == f"Warning: {file}, line 2, column 3, broker=2: No broker config has the name a\n"


def of_topics(request: httpx.Request) -> httpx.Response:
    """Refuse the topic r0, hide a password, and find the topic e1 equal already."""
    responses: list[dict[str, Any]] = []
    for each in json.loads(request.content)["resources"]:
        name = each["resourceName"]
        diff = [
            {"key": config["name"], "before": None, "after": None if "password" in config["name"] else config["value"]}
            | ({"secret": True} if "password" in config["name"] else {})
            for config in each["configs"]
        ]
        refused = {"errorCode": 40, "errorMessage": "not valid", "outcome": "not_applied", "warnings": []}
        done = {"errorCode": 0, "warnings": [], "diff": [] if name == "e1" else diff, "revision": "7"}
        responses.append(refused if name == "r0" else done)
    return httpx.Response(207, json={"responses": responses})


@pytest.fixture
def file_of_topics(answered: Recorded, tmp_path: Path) -> Path:
    """A file of two requests, with a refusal in the first."""
    answered.answers["incrementalAlter"] = of_topics
    topics = ["r0", "e1", *(f"t{number}" for number in range(499))]
    file = tmp_path / "topics.yaml"
    file.write_text(
        "".join(f"- {{id: topic={name}, configs: {{retention.ms: '1'}}}}\n" for name in topics)
        + "- {id: broker=0, configs: {ssl.key.password: planted}}\n"
    )
    return file


def test_a_dry_run_shows_the_differences_and_goes_on_after_a_refusal(answered: Recorded, file_of_topics: Path) -> None:
    said = CliRunner().invoke(cli, ["load", str(file_of_topics), "--validate-only", "--ticket", "T-1"])
    lines = said.stdout.splitlines()
    assert (said.exit_code, len(answered.requests)) == (1, 2)
    assert {path for path, _ in answered.sent} == {"configs:incrementalAlter?validateOnly=true&ticket=T-1"}
    assert lines[0].split() == ["ENTITY", "KEY", "BEFORE", "AFTER"]
    assert lines[1].split() == ["topic=t0", "retention.ms", "(not", "set)", "1"]
    assert lines[-2].split() == ["broker=0", "ssl.key.password", "(hidden)", "(hidden)"]
    assert lines[-1] == "Entities to change: 500; already equal: 1; refused: 1"
    assert said.stderr.splitlines() == [
        f"{file_of_topics}, line 1, column 3, topic=r0: not valid",
        "Nothing was written. Fix the errors above and load the file again.",
    ]
    assert "planted" not in said.output


def test_every_error_of_an_entity_is_shown(answered: Recorded, tmp_path: Path) -> None:
    parts = [{"pointer": "/resources/0/configs/0/value", "detail": "first"}, {"pointer": "", "detail": "second"}]
    refused = {"errorCode": 40, "errorName": "INVALID_CONFIG", "errorMessage": "first", "errors": parts}
    answered.answers["incrementalAlter"] = {"responses": [refused | {"outcome": "not_applied", "warnings": []}]}
    file = tmp_path / "topic.yaml"
    file.write_text("- {id: topic=t, configs: {a: '1', b: '2'}}\n")
    said = CliRunner().invoke(cli, ["load", str(file)])
    where = f"{file}, line 1, column 3, topic=t"
    assert said.stderr.splitlines()[:2] == [f"{where}: first (INVALID_CONFIG)", f"{where}: second"]


def test_a_load_ends_with_the_first_request_that_has_a_refusal(answered: Recorded, file_of_topics: Path) -> None:
    said = CliRunner().invoke(cli, ["load", str(file_of_topics), "--ticket", "T-1"])
    assert (said.exit_code, said.stdout, len(answered.requests)) == (1, "Entities changed: 498; already equal: 1\n", 1)
    assert said.stderr.endswith(
        "Not all entities were loaded. Changes that were made stay. Fix the errors above and load the file again.\n"
    )
    assert [path for path, _ in answered.sent] == ["configs:incrementalAlter?ticket=T-1"]


@pytest.mark.parametrize("option", [[], ["--validate-only"]])
def test_json_is_a_line_for_each_entity(file_of_topics: Path, option: list[str]) -> None:
    said = CliRunner().invoke(cli, ["load", str(file_of_topics), "--json", *option])
    found = [json.loads(line) for line in said.stdout.splitlines()]
    assert [(each["id"], each["errorCode"]) for each in found[:2]] == [("topic=r0", 40), ("topic=e1", 0)]
    assert len(found) == (502 if option else 500)
    assert "already equal: 1" in said.stderr
    assert found[0]["place"] == f"{file_of_topics}, line 1, column 3"
    error = json.loads(said.stderr.splitlines()[-1])
    assert (error["exitCode"], error["refused"]) == (1, 1)
    assert "line 1" not in said.stderr


def test_a_load_to_a_frozen_cluster_ends_with_the_reason(answered: Recorded, file_of_topics: Path) -> None:
    refused = {"errorCode": 44, "errorName": "POLICY_VIOLATION", "errorMessage": "frozen", "outcome": "not_applied"}
    problem = {"type": "/problems/frozen", "detail": "Cluster default is frozen: CHG-1", "responses": [refused] * 500}
    answered.answers["incrementalAlter"] = httpx.Response(409, json=problem)
    said = CliRunner().invoke(cli, ["load", str(file_of_topics)])
    assert said.exit_code == 1
    assert said.stderr.startswith("Not all entities were loaded. Entities changed before: 0\nCluster default is frozen")
    assert "Fix the errors" not in said.stderr


@pytest.mark.parametrize(
    "entity",
    [
        "broker=1\n  configs: {ssl.keystore.password: null}",
        "broker\n  configs: {my.plugin.setting: null}",
        "topic=a\n  configs: {only.in.a.later.release: null}",
    ],
)
def test_null_is_the_place_of_a_secret(entity: str) -> None:
    assert check(io.BytesIO(f"- id: {entity}\n".encode()), "FILE") == 1


@pytest.mark.parametrize("text", ["1e6", "0o17", "1_0", "010", "yes", "~", ""])
def test_an_export_is_loaded_with_the_same_text(text: str) -> None:
    exported = yaml.dump([{"id": "broker", "configs": {"a": text}}], Dumper=Dumper)
    [[found]] = pieces(io.BytesIO(exported.encode()), "FILE")
    assert found.values == {FacetName.CONFIGS: {"a": text}}


def test_a_reason_shows_no_value() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        list(pieces(io.BytesIO(b"- id: broker=1\n  configs: {password: 's3cret\n"), "FILE"))
    assert "s3cret" not in str(refused.value)
