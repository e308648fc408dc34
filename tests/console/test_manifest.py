"""The page of manifests: a plan, its apply, its refusals, and secrets that no page repeats."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.console.visitor import Visitor
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    import httpx

    from tests.console.api import Api
    from tests.support.service import Service

PAGE: Final = "/console/clusters/default/manifest"
HEAD: Final = "apiVersion: confplane/v1\nkind: Configs\nentities:\n"


def send(visitor: Visitor, manifest: str, **fields: str) -> httpx.Response:
    return visitor.post(PAGE, {"value manifest": manifest, **fields}, page=PAGE)


def hidden(text: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', text)
    assert found is not None, text
    return html.unescape(found[1])


def apply(visitor: Visitor, plan: str, manifest: str, **fields: str) -> httpx.Response:
    """Send the form under a plan."""
    names = ("plan", "revision", "atomic", "prune", "scope", "most", "force")
    return send(visitor, manifest, **{name: hidden(plan, name) for name in names}, **fields)


def test_a_plan_and_its_apply(visitor: Visitor, api: Api) -> None:
    manifest = f"{HEAD}  - id: user=pasted\n    quotas: {{producer_byte_rate: 1000}}\n"
    assert PAGE in visitor.page("/console/")
    plan = send(visitor, manifest)
    assert plan.status_code == 200, plan.text
    assert "1 to create." in plan.text
    assert "producer_byte_rate" in plan.text
    assert manifest in html.unescape(plan.text), "the form of the apply has the text"
    done = apply(visitor, plan.text, manifest, reason="from a page")
    assert done.status_code == 200, done.text
    assert "<h2>Applied</h2>" in done.text
    assert "1 applied" in done.text
    assert api.get("client-quotas/user=pasted")["quotas"] == {"producer_byte_rate": 1000}
    [change] = api.get("audit", entity="user=pasted")["items"]
    assert change["reason"] == "from a page"
    again = send(visitor, manifest)
    assert "There is nothing to apply" in again.text
    assert 'name="plan"' not in again.text


def test_a_plan_shows_risks_and_a_stale_one_is_shown_again(visitor: Visitor) -> None:
    first = f"{HEAD}  - id: user=stale\n    quotas: {{producer_byte_rate: 1000}}\n"
    lower = first.replace("1000", "1")
    apply(visitor, send(visitor, first).text, first)
    plan = send(visitor, lower)
    assert "is lowered by more than the factor 10" in plan.text
    apply(visitor, send(visitor, first.replace("1000", "2000")).text, first.replace("1000", "2000"))
    stale = apply(visitor, plan.text, lower)
    assert stale.status_code == 409
    assert "This is the plan now:" in stale.text
    assert "2000" in stale.text


@pytest.mark.parametrize(
    ("manifest", "fields", "status", "said"),
    [
        ("", {}, 400, "Paste a manifest"),
        ("- a\n", {}, 400, "Paste a manifest"),
        ("a: [", {}, 400, "the manifest, line 2, column 1"),
        ("a: 1\na: 2\n", {}, 400, "the manifest, line 2, column 1"),
        (HEAD.replace("v1", "v2") + "  []\n", {}, 400, "/apiVersion"),
        (f"{HEAD}  - id: topic=t\n", {}, 400, "/entities/0"),
        (f"{HEAD}  - id: topic=t\n    quotas: {{}}\n", {"scope": "topic"}, 400, "/scope"),
        (f"{HEAD}  []\n", {"prune": "on"}, 400, "/prune"),
        (f"owner: a\n{HEAD}  []\n", {"force": "topic=t"}, 400, "'topic=t' is not an entity and a key"),
        (f"owner: a\n{HEAD}  []\n", {"force": "topic=t/flush.ms"}, 400, "the document does not have it"),
        (f"{HEAD}  []\n", {"most": "-1"}, 400, "The most deletions are a whole number."),
        (f"{HEAD}  []\nprune: true\n", {}, 400, "prune is not a member of a manifest."),
        (f"{HEAD}  - id: topic=t\n    configs: {{retention.ms: x}}\n", {}, 422, "/entities/0/configs/retention.ms"),
    ],
)
def test_a_refusal_says_what_is_wrong(
    visitor: Visitor, manifest: str, fields: dict[str, str], status: int, said: str
) -> None:
    answer = send(visitor, manifest, **fields)
    assert answer.status_code == status, answer.text
    assert said in html.unescape(answer.text)
    assert 'name="plan"' not in answer.text


def test_secrets_are_in_no_page(visitor: Visitor) -> None:
    secret = "not-to-be-seen"
    of_broker = f"{HEAD}  - id: broker=1\n    configs: {{my.plugin.token: {secret}, num.io.threads: '9'}}\n"
    assert secret not in send(visitor, f"{of_broker}   broken").text
    plan = send(visitor, of_broker)
    assert plan.status_code == 200, plan.text
    assert "It may have secrets" in plan.text
    done = apply(visitor, plan.text, of_broker)
    assert done.status_code == 200, done.text
    assert secret not in plan.text + done.text
    other = apply(visitor, plan.text, of_broker.replace(secret, "another"))
    assert other.status_code == 409
    assert "another</" not in other.text


def test_an_owner_prunes_and_takes_keys_over(visitor: Visitor, api: Api) -> None:
    def of(owner: str, value: str, *names: str) -> str:
        entities = (f"  - id: topic=page-{name}\n    configs: {{flush.ms: '{value}'}}\n" for name in names)
        return f"owner: page-{owner}\n{HEAD}{''.join(entities)}"

    first = of("first", "1", "gone", "kept", "taken")
    assert "<h2>Applied</h2>" in apply(visitor, send(visitor, first).text, first).text
    refused = send(visitor, of("first", "1", "kept"), prune="on")
    assert (refused.text.count("not in the manifest"), "maxDeletes is 1" in refused.text) == (2, True), refused.text
    less = of("first", "1", "kept", "taken")
    plan = send(visitor, less, prune="on")
    assert "1 to delete" in plan.text
    assert "<h2>Applied</h2>" in apply(visitor, plan.text, less).text
    found = api.get("configs", prefix="page-")["items"]
    assert [each["id"] for each in found] == ["topic=page-kept", "topic=page-taken"]
    second = of("second", "2", "taken")
    assert "is a key of the owner page-first" in send(visitor, second).text
    plan = send(visitor, second, force="\n topic=page-taken/flush.ms \n")
    assert "new owner instead of page-first" in plan.text
    assert "<h2>Applied</h2>" in apply(visitor, plan.text, second).text
    assert api.get("configs/topic=page-taken")["configs"] == {"flush.ms": "2"}


def test_a_manifest_is_applied_for_some_time(visitor: Visitor, api: Api) -> None:
    manifest = f"{HEAD}  - id: user=page-hours\n    quotas: {{producer_byte_rate: 1000}}\n"
    assert "<h2>Applied</h2>" in apply(visitor, send(visitor, manifest).text, manifest, duration="6h").text
    [schedule] = api.get("schedules", entity="user=page-hours")["items"]
    assert schedule["state"] == "active"


def test_a_reader_plans_and_does_not_apply(service: Service, api: Api) -> None:
    everybody = {"resourceType": "user", "name": "*", "patternType": "literal"}
    token = api.token("User:reads-manifests", {"operation": "DESCRIBE_CONFIGS", **everybody})
    with Visitor(service, token) as opened:
        reader = opened.signed_in()
        plan = send(reader, f"{HEAD}  - id: user=unwritten\n    quotas: {{producer_byte_rate: 5}}\n")
    assert plan.status_code == 200, plan.text
    assert "you may not change it" in plan.text
    assert 'name="plan"' not in plan.text


def test_the_page_of_an_entity_has_its_owners_and_labels(visitor: Visitor) -> None:
    manifest = f"{HEAD}  - id: topic=owned-page\n    configs: {{retention.ms: '1000'}}\n"
    manifest = manifest.replace("entities:", "owner: payments\nlabels: {stage: test}\nentities:")
    plan = send(visitor, manifest)
    assert "retention.ms: new owner" in plan.text
    assert "<h2>Applied</h2>" in apply(visitor, plan.text, manifest).text

    def shown() -> bool:
        page = visitor.page("/console/clusters/default/entities/topic=owned-page")
        return "<strong>payments</strong>" in page and "stage=test" in page

    wait_for(shown)
