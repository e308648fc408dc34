"""Files of ``confplane load``: their reading in parts, the reasons for which a file is refused, and what is sent."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from typer.testing import CliRunner

from confplane.cli.commands import cli
from confplane.cli.remote import manifests
from confplane.cli.remote.manifests import read_parts
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from confplane.cli.remote.manifests import ManifestFiles
    from tests.unit.cli.answers import Recorded

HEAD: Final = "apiVersion: confplane/v1\nkind: Configs\n"
PLAN_ID: Final = "7d2f9c0d1e3b4a6c7d8e9f00112233445566abcd"
RUN_ID: Final = "0195f2a1-0000-7000-8000-000000000000"
NAMES: Final = ("create", "update", "delete", "claim", "none", "refused")


def parts(text: bytes) -> list[ManifestFiles]:
    return list(read_parts(io.BytesIO(text), Path("FILE"), None))


def test_entities_have_their_places_and_values_without_secrets() -> None:
    text = (
        b"---\n# A comment.\n\n- id: user=alice\n  client-quotas: {producer_byte_rate: 1, request_percentage: 0.5}\n"
        b"  # Another.\n\n# One more.\n-\n  id: broker\n  configs:\n    a: ''\n    ssl.key.password: null\n\r\n- id: topic=t\n"
    )
    [part] = parts(text)
    assert part.document["entities"] == [
        {"id": "user=alice", "quotas": {"producer_byte_rate": 1, "request_percentage": 0.5}},
        {"id": "broker", "configs": {"a": ""}},
    ]
    assert part.secrets == 1
    assert part.place("/entities/0/quotas/producer_byte_rate") == "FILE, line 5, column 19"
    assert part.place("/entities/1") == "FILE, line 10, column 3"


@pytest.mark.parametrize(("quotas", "configs"), [("quotas", "clientConfigs"), ("client-quotas", "client-configs")])
@pytest.mark.parametrize("head", ["", f"{HEAD}entities:\n"])
def test_an_entity_may_be_moved_between_an_export_and_a_manifest(head: str, quotas: str, configs: str) -> None:
    [part] = parts(f"{head}- id: user=a\n  {quotas}: {{producer_byte_rate: 1}}\n  {configs}: {{acks: all}}\n".encode())
    assert part.document["entities"] == [
        {"id": "user=a", "quotas": {"producer_byte_rate": 1}, "clientConfigs": {"acks": "all"}}
    ]


@pytest.mark.parametrize("text", [b"[]\n", b"# Nothing.\n---\n[]\n", b"--- []", f"{HEAD}entities: []\n".encode()])
def test_a_file_may_have_no_entity(text: bytes) -> None:
    assert [part.document["entities"] for part in parts(text)] == [[]]


def test_a_manifest_is_loaded_without_its_owner() -> None:
    text = f"{HEAD}cluster: payments\nowner: a\nlabels: {{b: c}}\nentities:\n- id: user=a\n  clientConfigs: {{acks: all}}\n"
    [part] = parts(text.encode())
    assert part.document == {
        "apiVersion": "confplane/v1",
        "kind": "Configs",
        "cluster": "payments",
        "entities": [{"id": "user=a", "clientConfigs": {"acks": "all"}}],
    }


def test_a_part_has_a_bounded_number_of_entities_and_bytes() -> None:
    text = b"".join(b"- {id: user=u%d, client-configs: {acks: all}}\n" % number for number in range(12_001))
    assert [len(part.entities) for part in parts(text)] == [10_000, 2_001]
    value = b"x" * 3_000_000
    text = b"".join(b"- {id: topic=t%d, configs: {a: %s}}\n" % (number, value) for number in range(7))
    assert [len(part.entities) for part in parts(text)] == [6, 1]


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("a: b", (1, 1), "'a' is not a member of a manifest"),
        (
            "- id: user=a\n  quotas: {a: 1}\n  client-quotas: {b: 1}",
            (3, 3),
            "client-quotas and quotas have the same keys. Join both.",
        ),
        ("- id: topic=a\n  configs: {a: [b]}", (2, 13), "the value of a is not text; put it in quotes"),
    ],
)
def test_a_file_of_another_form_is_refused_with_the_place(text: str, place: tuple[int, int], reason: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parts(text.encode())
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
            "- {id: user=a, client-quotas: {producer_byte_rate: 1}}\n"
            + "".join(f"- {{id: user=u{number}, client-quotas: {{}}}}\n" for number in range(10_000))
            + "- {id: user=a, client-quotas: {producer_byte_rate: 2}}\n",
            "line 10002, column 4: user=a occurs twice: here, and in FILE, line 1, column 4",
        ),
        (
            "- id: user=a\n- id: user%3Da\n",
            "line 2, column 3: user=a occurs twice: here, and in FILE, line 1, column 3",
        ),
        # Null for a key that is not a secret.
        ("- id: broker=1\n  configs: {background.threads: null}\n", "line 2, column 13: background.threads is not a"),
        # An id that the service would refuse halfway through the load.
        ("- id: ip=~3A~3A1\n", "line 1, column 3: '::1' is not an IPv4 address"),
    ],
)
def test_a_file_that_would_lose_or_change_data_is_refused_before_any_request(
    answered: Recorded, tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    said = CliRunner().invoke(cli, ["load", str(file)])
    assert (said.exit_code, said.stdout, answered.requests) == (2, "", [])
    assert said.stderr.startswith(f"{file}, {reason.replace('FILE', str(file))}")


def test_a_directory_is_refused_with_the_command_that_takes_it(answered: Recorded, tmp_path: Path) -> None:
    said = CliRunner().invoke(cli, ["load", str(tmp_path)])
    assert (said.exit_code, answered.sent) == (2, [])
    assert "is a directory: load its files one by one, or use `confplane apply`" in said.stderr


def test_a_manifest_of_another_cluster_is_refused(answered: Recorded, tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(f"{HEAD}cluster: other\nentities: []\n")
    said = CliRunner().invoke(cli, ["load", str(file), "--cluster", "default"])
    assert (said.exit_code, answered.requests) == (2, [])
    assert said.stderr == f"{file}: the manifest is not of the cluster default\n"


def planned(request: httpx.Request) -> httpx.Response:
    """Plan all topics: r is refused, e is equal, and the others change."""
    changes: list[dict[str, Any]] = []
    plain = {"facet": "configs", "pruned": False, "mayAlter": True, "errorCode": 0, "errors": [], "warnings": []}
    for number, each in enumerate(json.loads(request.content)["entities"]):
        name, change = each["id"].partition("=")[2], {"id": each["id"], **plain, "action": "create", "diff": []}
        if name.startswith("r"):
            error = {"pointer": f"/entities/{number}/configs/retention.ms", "detail": "not valid"}
            change |= {"errorCode": 40, "errorName": "INVALID_CONFIG", "errorMessage": "not valid", "errors": [error]}
        elif name.startswith("w"):
            change |= {"action": "none", "warnings": ["a risk"]}
        if not name.startswith("e"):
            diff = [{"key": key, "before": None, "after": value} for key, value in each["configs"].items()]
            changes.append({**change, "diff": diff})
    summary = dict.fromkeys(NAMES, 0) | {"create": len(changes)}
    plan = {"planId": PLAN_ID, "revision": "7", "summary": summary, "refusal": None, "changes": changes}
    return httpx.Response(207, json=plan)


def applied(request: httpx.Request) -> httpx.Response:
    """Apply what :func:`planned` plans."""
    entities = json.loads(request.content)["entities"]
    results = [
        {"id": each["id"], "facet": "configs", "action": "create", "errorCode": 0, "changeId": "c"}
        for each in entities
        if not each["id"].startswith("topic=e")
    ]
    answer = {"planId": PLAN_ID, "runId": RUN_ID, "failed": 0, "next": None, "results": results}
    return httpx.Response(200, json=answer)


@pytest.fixture
def service(answered: Recorded, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """A service that plans and applies parts of three entities."""
    monkeypatch.setattr(manifests, "PART_ENTITIES", 3)
    answered.answers |= {"plan": planned, "apply": applied}
    return answered


def topics(tmp_path: Path, *names: str) -> str:
    file = tmp_path / "topics.yaml"
    file.write_text("".join(f"- {{id: topic={name}, configs: {{retention.ms: '1'}}}}\n" for name in names))
    return str(file)


def test_a_dry_run_shows_the_plans_and_goes_on_after_a_refusal(service: Recorded, tmp_path: Path) -> None:
    file = topics(tmp_path, "r0", "t0", "t1", "t2")
    said = CliRunner().invoke(cli, ["load", file, "--validate-only"])
    lines = said.stdout.splitlines()
    assert (said.exit_code, [path for path, _ in service.sent]) == (1, ["manifests:plan"] * 2)
    assert {body["merge"] for _, body in service.sent} == {True}
    assert lines[0].split() == ["ENTITY", "KEY", "BEFORE", "AFTER", "NOTE"]
    assert lines[1].split() == ["topic=t0", "retention.ms", "(not", "set)", "1"]
    assert [line for line in lines if line.startswith("Plan")] == [
        "Plan: 3 to create, 0 to update, 0 to delete, 0 unchanged",
        "Plan: 1 to create, 0 to update, 0 to delete, 0 unchanged",
    ]
    assert said.stderr == f"{file}, line 1, column 28: not valid (INVALID_CONFIG)\n"


def test_a_load_ends_with_the_first_part_that_has_a_refusal(service: Recorded, tmp_path: Path) -> None:
    said = CliRunner().invoke(cli, ["load", topics(tmp_path, "e0", "t0", "t1", "r0"), "--ticket", "T-1"])
    assert said.exit_code == 1
    assert [path for path, _ in service.sent] == ["manifests:plan", "manifests:apply?ticket=T-1", "manifests:plan"]
    assert f"Changes applied: 2; `confplane revert --request-id {RUN_ID}` undoes them" in said.stdout
    assert said.stderr.endswith("(INVALID_CONFIG)\nNot all of the file was loaded. Changes applied: 2\n")


def test_a_load_without_a_difference_applies_nothing(service: Recorded, tmp_path: Path) -> None:
    said = CliRunner().invoke(cli, ["load", topics(tmp_path, "e0", "w0")])
    assert (said.exit_code, [path for path, _ in service.sent]) == (0, ["manifests:plan"])
    assert said.stderr == "Warning: topic=w0: a risk\n"


def test_json_is_a_line_for_each_result_or_plan(service: Recorded, tmp_path: Path) -> None:
    file = topics(tmp_path, "t", "t0", "t1", "t2")
    said = CliRunner().invoke(cli, ["load", file, "--json"])
    assert said.exit_code == 0, said.output
    assert [json.loads(line)["id"] for line in said.stdout.splitlines()][:2] == ["topic=t", "topic=t0"]
    said = CliRunner().invoke(cli, ["load", file, "--json", "--validate-only"])
    assert [len(json.loads(line)["changes"]) for line in said.stdout.splitlines()] == [3, 1]
    assert len(service.sent) == 6


@pytest.mark.parametrize("place", ["plan", "result"])
def test_a_plan_that_is_out_of_date_is_made_again(service: Recorded, tmp_path: Path, place: str) -> None:
    stale = {
        "plan": httpx.Response(409, json={"type": "/problems/stale-plan", "detail": "changed", "changes": []}),
        "result": httpx.Response(
            207,
            json={
                "runId": RUN_ID,
                "failed": 1,
                "next": None,
                "results": [
                    {"id": "topic=t", "errorCode": 0, "changeId": "c"},
                    {"id": "topic=u", "errorCode": 53, "errorName": "INVALID_UPDATE_VERSION", "changeId": None},
                ],
            },
        ),
    }[place]
    answers = [stale]
    service.answers["apply"] = lambda request: answers.pop() if answers else applied(request)
    said = CliRunner().invoke(cli, ["load", topics(tmp_path, "t", "u")])
    assert (said.exit_code, said.stderr) == (0, "")
    # Changes of the earlier run are undone by its own request id.
    undone = f"Changes applied: 1; `confplane revert --request-id {RUN_ID}` undoes them\n"
    assert (undone in said.stdout) is (place == "result"), said.stdout
    assert [path for path, _ in service.sent] == ["manifests:plan", "manifests:apply"] * 2
    service.answers["apply"] = stale
    said = CliRunner().invoke(cli, ["load", topics(tmp_path, "t", "u")])
    assert said.exit_code == 1
    assert said.stderr.startswith("Entities of the file are changed again and again")
    assert len(service.sent) == 14


def test_a_load_with_a_lost_answer_says_that_the_file_can_be_loaded_again(service: Recorded, tmp_path: Path) -> None:
    lost = {"type": "/problems/commit-outcome-unknown", "detail": "lost", "outcome": "unknown"}
    service.answers["apply"] = httpx.Response(503, json=lost)
    said = CliRunner().invoke(cli, ["load", topics(tmp_path, "t")])
    assert said.exit_code == 3
    assert said.stderr.startswith("Not all of the file was loaded. Changes applied: 0. Load the file again")


@pytest.mark.parametrize("end", ["stale", "refused"])
def test_what_was_applied_before_a_run_ended_has_its_request_id(service: Recorded, tmp_path: Path, end: str) -> None:
    done = [{"id": "topic=t", "errorCode": 0, "changeId": "c"}]
    left = {"runId": RUN_ID, "failed": 0, "next": {"left": 1}, "results": done}
    problem = {"type": "/problems/stale-plan" if end == "stale" else "/problems/unauthorized", "detail": "d"}
    answers = [httpx.Response(409 if end == "stale" else 401, json=problem), httpx.Response(207, json=left)]
    service.answers["apply"] = lambda request: answers.pop() if answers else applied(request)
    said = CliRunner().invoke(cli, ["load", topics(tmp_path, "t", "u")])
    assert said.exit_code == (0 if end == "stale" else 1), said.output
    assert f"Changes applied: 1; `confplane revert --request-id {RUN_ID}` undoes them\n" in said.stdout


def test_a_load_to_a_frozen_cluster_ends_with_the_reason(service: Recorded, tmp_path: Path) -> None:
    problem = {"type": "/problems/frozen", "detail": "Cluster default is frozen: CHG-1", "outcome": "not_applied"}
    service.answers["apply"] = httpx.Response(409, json=problem)
    said = CliRunner().invoke(cli, ["load", topics(tmp_path, "t")])
    assert said.exit_code == 1
    assert said.stderr.splitlines()[1] == "Cluster default is frozen: CHG-1"


@pytest.mark.parametrize(
    "entity",
    [
        "broker=1\n  configs: {ssl.keystore.password: null}",
        "broker\n  configs: {my.plugin.setting: null}",
        "topic=a\n  configs: {only.in.a.later.release: null}",
    ],
)
def test_null_is_the_place_of_a_secret(entity: str) -> None:
    [part] = parts(f"- id: {entity}\n".encode())
    assert part.secrets == 1
