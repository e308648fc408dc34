"""The pages of change requests: listed, reviewed by another person, applied, with what each caller may do."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.texts import rfc3339
from tests.console.api import CLUSTER, Api
from tests.console.test_every_page import MARKUP
from tests.console.visitor import Visitor, text_of
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

    from tests.support.service import Service

HOME = "/console/clusters/default"
REQUESTS = f"{HOME}/requests"
AWAITING = f"{HOME}/awaiting"
RULES = """\
rules:
  - name: two-people
    match: {names: {user: "ruled-*"}, except_principals: "User:admin"}
    approvals: {count: 1}
  - name: named-people
    match: {names: {user: "ruled-led-*"}}
    approvals: {count: 2, from: ["User:ops", "User:sre"]}
  - name: protected-users
    match: {names: {user: "protected-*"}}
    protected: true
"""
SECRET = " planted secret \n"


@pytest.fixture(scope="module")
def service_options(console_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The module's service has a console, and a rule that asks for approvals."""
    return ruled_options(console_settings, tmp_path_factory.mktemp("rules"))


def ruled_options(settings: dict[str, str], directory: Path) -> dict[str, Any]:
    """Return the options of a service with a rule that asks for approvals of entities whose names begin with ruled-."""
    file = directory / "policy.yaml"
    file.write_text(RULES)
    secret = directory / "encoder-secret"
    secret.write_text("an encoder secret for tests")
    return {
        "settings": settings,
        "cluster": {"policy_file": str(file), "password_encoder": {"secret_file": str(secret), "iterations": 1024}},
    }


@pytest.fixture(scope="module")
def tokens(service: Service) -> dict[str, str]:
    """The tokens of a developer who may propose, of two operators, and of somebody who may only read."""
    everything = {"resourceType": "cluster"}
    rights = {
        "dev": [{"operation": each, **everything} for each in ("PROPOSE", "DESCRIBE_CONFIGS")],
        "ops": [{"role": "operator"}],
        "sre": [{"role": "operator"}],
        "viewer": [{"role": "viewer"}],
    }
    with Api(service) as opened:
        return {name: opened.token(f"User:{name}", *grants) for name, grants in rights.items()}


@pytest.fixture
def people(service: Service, tokens: dict[str, str]) -> Iterator[dict[str, Visitor]]:
    """The browsers of these people."""
    opened = {name: Visitor(service, token) for name, token in tokens.items()}
    try:
        for name, visitor in opened.items():
            signed_in(visitor, {"dev": " on", "viewer": "viewer on"}.get(name, "operator on"))
        yield opened
    finally:
        for visitor in opened.values():
            visitor.client.close()


def signed_in(visitor: Visitor, known: str) -> None:
    """Sign in as soon as the service knows the token, and wait until it knows its grants."""
    wait_for(lambda: visitor.sign_in().status_code == 303)
    wait_for(lambda: known in text_of(visitor.page(f"{HOME}/access")))


def proposed(service: Service, token: str, *edits: dict[str, Any], **query: str) -> str:
    """Propose a change over the API, and return the request's id."""
    with Api(service, token) as api:
        made = api.client.post(f"{CLUSTER}/change-requests", json={"edits": list(edits)}, params=query)
        assert made.status_code == 201, made.text
        return str(made.json()["id"])


def rate(entity: str, value: int) -> dict[str, Any]:
    """The edit that sets the rate of a producer."""
    return {"facet": "client-quotas", "id": entity, "ops": [{"key": "producer_byte_rate", "value": value}]}


def step(visitor: Visitor, request: str, name: str, **form: str) -> httpx.Response:
    """Send a form of a request's page as a browser does."""
    path = f"{REQUESTS}/{request}"
    page = visitor.page(path)
    hidden = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', page))
    fields = {key: html.unescape(text) for key, text in hidden.items()}
    return visitor.post(path, {**fields, "step": name, **form})


def buttons(visitor: Visitor, request: str) -> set[str]:
    """Return the steps that the page of a request offers."""
    return set(re.findall(r'name="step" value="([^"]+)"', visitor.page(f"{REQUESTS}/{request}")))


def test_a_request_is_approved_by_another_person_and_applied(
    service: Service, people: dict[str, Visitor], tokens: dict[str, str], visitor: Visitor, api: Api
) -> None:
    api.put("client-quotas/user=ruled-a", {"quotas": {"producer_byte_rate": 1048576}})
    request = proposed(service, tokens["dev"], rate("user=ruled-a", 2097152), reason="more load", ticket="CHG-1")
    dev, ops = people["dev"], people["ops"]
    assert buttons(dev, request) == {"comment", "cancel", "revise"}
    assert buttons(ops, request) == {"comment", "approve", "reject", "revise"}
    assert buttons(visitor, request) == {"comment", "reject", "cancel", "revise"}, "the admin token approves nothing"
    assert buttons(people["viewer"], request) == set()

    shown = text_of(ops.page(f"{REQUESTS}/{request}"))
    for part in ("producer_byte_rate 1 MiB/s", "producer_byte_rate 2 MiB/s", "“more load”", "CHG-1", "User:dev"):
        assert part in shown
    assert "missing rule 'two-people' asks for an approval" in shown
    assert f'hx-get="{AWAITING}"' in ops.page("/console/")
    assert request in ops.page(AWAITING)
    for other in (dev, visitor, people["viewer"]):
        assert request not in other.page(AWAITING)

    assert step(ops, request, "comment", comment=MARKUP).status_code == 303
    assert MARKUP not in ops.page(f"{REQUESTS}/{request}")
    assert MARKUP in html.unescape(ops.page(f"{REQUESTS}/{request}"))
    assert step(ops, request, "approve", comment="fine").headers["location"] == f"{REQUESTS}/{request}"
    assert request not in ops.page(AWAITING)
    assert "1 request of mine can be applied" in text_of(dev.page(AWAITING))
    assert "apply" in buttons(dev, request)
    assert step(dev, request, "apply").status_code == 303
    page = dev.page(f"{REQUESTS}/{request}")
    [change] = re.findall(rf'href="({HOME}/audit/[^"]+)"', page)
    assert f'href="{REQUESTS}/{request}"' in dev.page(change)
    assert buttons(dev, request) == {"comment", "revert"}
    assert api.get("client-quotas/user=ruled-a")["quotas"] == {"producer_byte_rate": 2097152}


def test_requests_are_listed_by_state_and_entity(
    service: Service, people: dict[str, Visitor], tokens: dict[str, str]
) -> None:
    first = proposed(service, tokens["dev"], rate("user=listed-a", 1), reason=MARKUP)
    second = proposed(service, tokens["dev"], rate("user=listed-b", 1))
    ops = people["ops"]
    assert f'href="{REQUESTS}"' in ops.page("/console/")
    assert step(ops, second, "reject", comment="no").status_code == 303
    listed = ops.page(REQUESTS)
    assert listed.index(second) < listed.index(first)
    assert MARKUP not in listed
    for search, expected in {
        "state=open": {first}, "state=rejected": {second}, "state=awaiting": {first}, "state=applied": set(),
        "entity=user=listed-b": {second}, "state=open&entity=user=listed-b": set(),
    }.items():  # fmt: skip
        found = ops.page(f"{REQUESTS}?{search}")
        assert {each for each in (first, second) if each in found} == expected, search
    assert first not in people["dev"].page(f"{REQUESTS}?state=awaiting")
    for wrong in ("state=none", "entity=nobody", "token=x"):
        refused = ops.get(f"{REQUESTS}?{wrong}")
        assert refused.status_code == 400
        assert 'role="alert"' in refused.text
    assert ops.get(f"{REQUESTS}/{first[:-1]}").status_code in {400, 404}


def test_what_was_changed_in_between_is_shown_and_decided_again(
    service: Service, people: dict[str, Visitor], tokens: dict[str, str], api: Api
) -> None:
    request = proposed(service, tokens["dev"], rate("user=ruled-b", 2097152))
    ops, dev = people["ops"], people["dev"]
    early = ops.page(f"{REQUESTS}/{request}")
    [digest] = re.findall(r'name="digest" value="([^"]+)"', early)
    [etag] = re.findall(r'name="etag" value="([^"]+)"', early)
    assert step(ops, request, "approve").status_code == 303
    api.put("client-quotas/user=ruled-b", {"quotas": {"producer_byte_rate": 3145728}})
    refused = step(dev, request, "apply")
    assert refused.status_code == 409
    assert 'role="alert"' in refused.text
    assert "was changed since the request was decided" in text_of(refused.text)
    assert "producer_byte_rate 3 MiB/s" in text_of(refused.text)

    late = step(dev, request, "revise", etag=html.unescape(etag))
    assert late.status_code == 412
    assert step(dev, request, "revise").status_code == 303
    stale = step(ops, request, "approve", digest=digest, comment="typed already")
    assert stale.status_code == 409
    assert "typed already" in stale.text
    assert "The request has the content" in stale.text
    assert step(ops, request, "approve").status_code == 303
    assert step(ops, request, "apply").status_code == 303
    assert api.get("client-quotas/user=ruled-b")["quotas"] == {"producer_byte_rate": 2097152}


def test_a_refused_step_says_what_the_api_says(
    service: Service, people: dict[str, Visitor], tokens: dict[str, str]
) -> None:
    request = proposed(service, tokens["ops"], rate("user=ruled-c", 1))
    for who, name, status in (("ops", "approve", 403), ("viewer", "reject", 403), ("sre", "comment", 400)):
        csrf = re.search(r'name="csrf" value="([^"]+)"', people[who].page(f"{HOME}/manifest"))
        assert csrf is not None
        refused = step(people[who], request, name, csrf=csrf[1])
        assert (refused.status_code, 'role="alert"' in refused.text) == (status, True), (who, name)
    assert step(people["ops"], request, "unknown").status_code == 400
    assert step(people["ops"], request, "cancel", comment="not needed").status_code == 303
    assert buttons(people["sre"], request) == {"comment"}


def test_a_secret_is_supplied_again_and_shown_nowhere(
    service: Service, people: dict[str, Visitor], tokens: dict[str, str], visitor: Visitor, api: Api
) -> None:
    key = "listener.name.internal.ssl.key.password"
    edit = {"facet": "configs", "id": "broker=7", "ops": [{"key": key, "value": SECRET}]}
    request = proposed(service, tokens["sre"], edit)
    # Its expiry can be changed, and a time at which it applies itself can't be given.
    page = people["sre"].page(f"{REQUESTS}/{request}")
    assert ("Change its expiry" in page, 'name="expiresAt"' in page, 'name="applyAt"' in page) == (True, True, False)
    later = rfc3339((datetime.now(UTC) + timedelta(days=30)).replace(microsecond=0))
    assert step(people["sre"], request, "revise", expiresAt=later).status_code == 303
    assert api.get(f"change-requests/{request}")["expiresAt"] == later
    assert step(people["ops"], request, "approve").status_code == 303
    assert ("apply" in buttons(people["ops"], request), "apply" in buttons(people["dev"], request)) == (True, False)
    pages = [people["sre"].page(f"{REQUESTS}/{request}"), visitor.page(REQUESTS)]
    assert f'name="value broker=7 {key}"' in pages[0]
    field = f"value broker=7 {key}"
    pages.append((wrong := step(people["sre"], request, "apply", **{field: f"other{SECRET}"})).text)
    assert wrong.status_code == 400
    assert step(people["sre"], request, "apply", **{field: SECRET.replace("\n", "\r\n")}).status_code == 303
    assert key in api.get("configs/broker=7")["configs"]
    pages.append(visitor.page(f"{REQUESTS}/{request}"))
    assert not any(SECRET.strip() in page for page in pages)
