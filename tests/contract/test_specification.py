"""The committed specification: it is the code's, and it says of every operation what it may answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
import yaml

from confplane.api.app import FAMILIES
from confplane.api.routing.operations import Effect, RouteOperation
from confplane.services.limits import LimitClass
from confplane.serving import openapi_yaml
from tests.contract.api import FILE, PROBLEM_MEMBERS
from tests.support.operations import OPERATIONS, SPEC, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

OPEN = frozenset({"livez", "metrics", "protectedResource", "readyz"})
ROUTES = {str(route.operation_id): route for family in FAMILIES for route in family}
READS = frozenset(
    name
    for name, operation in OPERATIONS.items()
    if operation["method"] == "get" or operation["path"].endswith((":describe", ":check", ":plan"))
)
MANAGING = frozenset(
    {
        "createToken",
        "revokeToken",
        "rotateToken",
        "createGrant",
        "putGrant",
        "deleteGrant",
        "putWebhook",
        "deleteWebhook",
        "assignWebhook",
        "resumeWebhook",
        "rotateWebhookSecret",
        "testWebhook",
        "pauseSchedules",
        "resumeSchedules",
        "reviseChangeRequest",
        "approveChangeRequest",
        "rejectChangeRequest",
        "cancelChangeRequest",
        "commentChangeRequest",
        "applyChangeRequest",
    }
)
WRITES = (
    frozenset(OPERATIONS)
    - READS
    - MANAGING
    - {"clearRegistrations", "createChangeRequest", "reapplyDrift", "reportClientConfigs", "revertChangeRequest"}
)
FREEZES = frozenset({"freezeCluster", "thawCluster"})
UNCONDITIONAL = (
    frozenset(
        {"adoptDrift", "alterEntityConfigs", "applyManifest", "changeGlobalConfig", "endSchedule", "revertChanges"}
    )
    | FREEZES
)
"""Writes of KIPs that have no preconditions, reverts of changes, which have others, and freezes."""


def _schemas(item: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a schema that describes an object."""
    if isinstance(item, dict):
        if item.get("type") == "object":
            yield item
        for value in item.values():
            yield from _schemas(value)
    elif isinstance(item, list):
        for value in item:
            yield from _schemas(value)


def _reachable(name: str, seen: set[str]) -> set[str]:
    if name not in seen:
        seen.add(name)
        text = yaml.safe_dump(SPEC["components"]["schemas"][name])
        for word in text.split():
            if word.startswith(("'#/components/schemas/", "#/components/schemas/")):
                _reachable(word.strip("'").rpartition("/")[2], seen)
    return seen


def test_the_committed_file_is_what_the_code_says() -> None:
    assert FILE.read_bytes() == openapi_yaml().encode(), "run `make openapi` and look at what changed"


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_answer_is_described(name: str) -> None:
    operation = OPERATIONS[name]
    statuses = set(operation["responses"])
    expected = {"400"} if name in OPEN else {"400", "401"}
    if "{cluster}" in operation["path"]:
        expected |= {"404"}
    if "requestBody" in operation:
        expected |= {"413", "415"}
    if name in WRITES:
        expected |= {"409", "422", "429", "503", "504"} | (set() if name in UNCONDITIONAL else {"412"})
    assert statuses >= expected
    for status, response in operation["responses"].items():
        answer = resolve(response)
        assert answer["description"]
        headers = set(answer["headers"])
        assert "X-Request-Id" in headers
        if int(status) >= 400 and name != "readyz":
            assert set(answer["content"]) == {"application/problem+json"}
        if status in {"429", "503"}:
            assert "Retry-After" in headers
        if int(status) < 300 and "{cluster}" in operation["path"]:
            assert {"Confplane-Revision", "Confplane-Stale-Ms"} <= headers
        if (int(status) < 300 and name in WRITES) or status == "504":
            assert "Confplane-Change-Id" in headers


@pytest.mark.parametrize("fact", ["effect", "limit"])
def test_no_operation_is_made_without_its_facts(fact: str) -> None:
    facts: dict[str, Any] = {"effect": Effect.NOTHING, "limit": None}
    assert RouteOperation("Who", {}, **facts).effect is Effect.NOTHING
    del facts[fact]
    with pytest.raises(TypeError, match=fact):
        RouteOperation("Who", {}, **facts)


def test_what_operations_do_fits_their_methods_and_paths() -> None:
    assert {name for name in OPERATIONS if ROUTES[name].operation.effect is Effect.NOTHING} == READS
    assert {name for name in OPERATIONS if ROUTES[name].operation.effect is Effect.CHANGE} == WRITES
    assert {name for name in OPERATIONS if ROUTES[name].operation.effect is Effect.MANAGING} == MANAGING


def test_every_operation_but_open_ones_counts_against_a_limit() -> None:
    limits = {name: ROUTES[name].operation.limit for name in OPERATIONS}
    assert {name for name, limit in limits.items() if limit is None} == OPEN
    assert {name for name, limit in limits.items() if limit is LimitClass.WRITE} == WRITES - FREEZES | {
        "clearRegistrations",
        "reapplyDrift",
    }
    assert {name for name, limit in limits.items() if limit is LimitClass.ADMIN} >= FREEZES
    read = {"describeClientConfigs", "effectiveConfigs", "getConfigs", "whoami", "listClusters", "getGlobalConfig"}
    assert read <= {name for name, limit in limits.items() if limit is LimitClass.READ}
    for name in OPERATIONS.keys() - OPEN:
        assert "429" in OPERATIONS[name]["responses"], name


@pytest.mark.parametrize("name", sorted(READS))
def test_a_read_with_an_etag_takes_it_back(name: str) -> None:
    operation = OPERATIONS[name]
    parameters = {parameter["name"] for parameter in map(resolve, operation.get("parameters", []))}
    tagged = "ETag" in operation["responses"]["200"]["headers"]
    assert ("If-None-Match" in parameters, "304" in operation["responses"]) == (tagged, tagged)


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_operation_explains_itself(name: str) -> None:
    operation = OPERATIONS[name]
    assert operation["summary"]
    assert len(operation["tags"]) == 1
    assert operation["tags"][0] in {tag["name"] for tag in SPEC["tags"]}
    assert operation["security"] == ([] if name in OPEN else [{"bearer": []}])
    for parameter in operation.get("parameters", []):
        known = resolve(parameter)
        assert known["description"]
        schema = {name: value for name, value in known["schema"].items() if name != "examples"}
        assert "null" not in str(schema), "a parameter is there or is left out"
    assert "partial(" not in OPERATIONS[name].get("description", ""), "the docstring of another callable"


def test_requests_take_no_unknown_members() -> None:
    names: set[str] = set()
    for operation in OPERATIONS.values():
        if "requestBody" in operation:
            _reachable(
                operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2], names
            )
    assert len(names) >= 12
    for name in names:
        assert SPEC["components"]["schemas"][name]["additionalProperties"] is False


def test_every_object_of_an_answer_is_closed_or_a_map() -> None:
    for name, schema in SPEC["components"]["schemas"].items():
        for item in _schemas(schema):
            if item.get("properties"):
                closed = item.get("additionalProperties") is False or isinstance(item["additionalProperties"], dict)
                assert closed, f"{name} would let anything pass"


def test_problems_have_their_members() -> None:
    problem = SPEC["components"]["schemas"]["Problem"]
    assert set(problem["required"]) == PROBLEM_MEMBERS


def test_everything_that_is_shared_is_used() -> None:
    text = FILE.read_text()
    for kind in ("schemas", "responses", "parameters", "headers"):
        for name in SPEC["components"][kind]:
            assert f"#/components/{kind}/{name}" in text, f"components.{kind}.{name} is used by nothing"


def test_every_default_of_a_member_is_one_of_its_values() -> None:
    for name, schema in SPEC["components"]["schemas"].items():
        for member, described in schema.get("properties", {}).items():
            if "default" in described:
                whole = described | {"components": SPEC["components"]}
                assert jsonschema_rs.is_valid(whole, described["default"]), f"{name}.{member}"


def test_no_title_repeats_a_name() -> None:
    assert not [name for name, schema in SPEC["components"]["schemas"].items() if isinstance(schema.get("title"), str)]
