"""Change requests that get other values from the console: the plan is made again, and approvals are gone."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from tests.console.test_change_request_pages import people, proposed, rate, service_options, tokens
from tests.console.test_change_request_pages import step as review
from tests.console.test_editing import HOME, fields_of, step
from tests.console.visitor import text_of

if TYPE_CHECKING:
    from tests.console.api import Api
    from tests.console.visitor import Visitor
    from tests.support.service import Service

__all__ = ["people", "service_options", "tokens"]


def form_of(visitor: Visitor, request: str, entity: str) -> tuple[str, str]:
    """Return the path and the form to which the page of a request leads for an entity."""
    page = visitor.page(f"{HOME}/requests/{request}")
    [link] = re.findall(rf'href="({HOME}/entities/{entity}/edit/[^"]+)"', page)
    return html.unescape(link).partition("?")[0], visitor.page(html.unescape(link))


def test_other_values_are_proposed_without_the_approvals(
    service: Service, people: dict[str, Visitor], tokens: dict[str, str], api: Api
) -> None:
    api.put("client-quotas/user=ruled-rev", {"quotas": {"consumer_byte_rate": 7, "request_percentage": 50}})
    edit = rate("user=ruled-rev", 2097152)
    edit["ops"].append({"key": "consumer_byte_rate", "op": "DELETE"})
    request = proposed(service, tokens["dev"], edit, rate("user=ruled-other", 1), reason="more load")
    dev, ops, sre = people["dev"], people["ops"], people["sre"]
    assert review(ops, request, "approve").status_code == 303
    path, form = form_of(dev, request, "user=ruled-rev")
    fields = fields_of(form)
    assert (fields["value producer_byte_rate"], fields["unit producer_byte_rate"]) == ("2", "MiB/s")
    assert "remove consumer_byte_rate" in fields
    assert 'name="duration"' not in form
    page = step(dev, path, form, {"value producer_byte_rate": "3", "reason": "less is enough", "step": "review"}).text
    assert "All approvals that it has are dropped" in text_of(page)
    assert re.findall(r'name="step" value="(save|propose|break-glass)"', page) == ["propose"]
    assert f"/change-requests/{request}:revise" in page
    done = step(dev, path, page, {"step": "propose"}, 303).headers["location"]
    shown = text_of(dev.page(done))
    assert "The request has new content, as revision 2. Approvals of earlier content do not count any more." in shown

    made = api.get(f"change-requests/{request}")
    assert (made["revision"], made["state"], made["approvals"]) == (2, "open", [])
    assert {each["id"]: each["diff"] for each in made["changes"]} == {
        "user=ruled-rev": [
            {"key": "consumer_byte_rate", "before": 7, "after": None},
            {"key": "producer_byte_rate", "before": None, "after": 3145728},
        ],
        "user=ruled-other": [{"key": "producer_byte_rate", "before": None, "after": 1}],
    }
    assert [each["text"] for each in made["events"] if each["action"] == "revise"] == ["less is enough"]
    assert review(sre, request, "approve").status_code == 303
    assert review(dev, request, "apply").status_code == 303
    quotas = api.get("client-quotas/user=ruled-rev")["quotas"]
    assert quotas == {"producer_byte_rate": 3145728, "request_percentage": 50}


def test_a_request_that_was_revised_in_between_is_not_overwritten(
    service: Service, people: dict[str, Visitor], tokens: dict[str, str], api: Api
) -> None:
    request = proposed(service, tokens["dev"], rate("user=ruled-raced", 1))
    dev, ops = people["dev"], people["ops"]
    path, form = form_of(dev, request, "user=ruled-raced")
    page = step(dev, path, form, {"value producer_byte_rate": "3", "step": "review"}).text
    other, theirs = form_of(ops, request, "user=ruled-raced")
    theirs = step(ops, other, theirs, {"value producer_byte_rate": "4", "step": "review"}).text
    step(ops, other, theirs, {"step": "propose"}, 303)
    refused = step(dev, path, page, {"step": "propose"}, 412).text
    assert 'role="alert"' in refused
    assert f'href="{HOME}/requests/{request}"' in refused
    assert api.get(f"change-requests/{request}")["changes"][0]["diff"][0]["after"] == 4


def test_only_who_may_revise_a_request_without_secrets_has_the_form(
    service: Service, people: dict[str, Visitor], tokens: dict[str, str]
) -> None:
    request = proposed(service, tokens["dev"], rate("user=ruled-seen", 1))
    assert "/edit/" not in people["viewer"].page(f"{HOME}/requests/{request}")
    key = "listener.name.revised.ssl.key.password"
    edit = {"facet": "configs", "id": "broker=9", "ops": [{"key": key, "value": "planted"}]}
    secret = proposed(service, tokens["sre"], edit)
    assert "/edit/" not in people["sre"].page(f"{HOME}/requests/{secret}")
    assert people["sre"].get(f"{HOME}/entities/broker=9/edit/configs?revises={secret}").status_code == 409
