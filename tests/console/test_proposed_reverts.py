"""Reverts of changes that a rule is in the way of: proposed instead, or made past the rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.console.api import CLUSTER
from tests.console.test_breaking_glass import WHY, emergency, emergency_token
from tests.console.test_change_request_pages import people, service_options, tokens
from tests.console.test_editing import HOME, step
from tests.console.test_every_page import MARKUP
from tests.console.test_proposing import request_of
from tests.console.visitor import text_of
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.console.api import Api
    from tests.console.visitor import Visitor

__all__ = ["emergency", "emergency_token", "people", "service_options", "tokens"]

REVERT = f"{HOME}/audit:revert"


def changed(api: Api, entity: str, *rates: int, glass: str | None = None) -> str:
    """Set a rate several times, and return the id of the last change."""
    headers = {} if glass is None else {"Confplane-Break-Glass": glass}
    for rate in rates:
        body = {"quotas": {"producer_byte_rate": rate}}
        answer = api.client.put(f"{CLUSTER}/client-quotas/{entity}", json=body, headers=headers)
        assert answer.status_code in {200, 201}, answer.text
    return str(answer.headers["Confplane-Change-Id"])


def ways(page: str) -> list[str]:
    """Return the steps that a preview offers."""
    return re.findall(r'name="step" value="(save|propose|break-glass)"', page)


def test_a_revert_that_needs_approval_is_proposed(people: dict[str, Visitor], api: Api) -> None:
    change = changed(api, "user=ruled-old", 1048576, 2097152)
    for who in ("ops", "dev"):  # the developer may not alter anything
        preview = people[who].page(f"{REVERT}?changeId={change}")
        assert ways(preview) == ["propose"]
        assert "/v1/clusters/default/change-requests" in preview
        assert "producer_byte_rate 1 MiB/s" in text_of(preview)
        sent = {"step": "propose", "reason": MARKUP, "ticket": "CHG-1"}
        done = step(people[who], REVERT, preview, sent, 303)
        again = step(people[who], REVERT, preview, sent, 303)
        assert again.headers["location"] == done.headers["location"], "sent twice, it makes one request"
        made = request_of(people[who], api, done)
        assert (made["author"]["principal"], made["reason"], made["ticket"]) == (f"User:{who}", MARKUP, "CHG-1")
        assert made["changes"][0]["diff"] == [{"key": "producer_byte_rate", "before": 2097152, "after": 1048576}]
    assert api.get("client-quotas/user=ruled-old")["quotas"] == {"producer_byte_rate": 2097152}
    assert ways(people["viewer"].get(f"{REVERT}?changeId={change}").text) == []


def test_a_refused_revert_offers_to_propose_the_same(people: dict[str, Visitor], api: Api) -> None:
    change = changed(api, "user=ruled-sent", 1, 2)
    preview = people["ops"].page(f"{REVERT}?changeId={change}")
    refused = step(people["ops"], REVERT, preview, {"step": "save"}, 422).text
    assert "Propose the change instead" in text_of(refused.partition('role="alert"')[2].partition("</p>")[0])
    assert ways(refused) == ["propose"]
    step(people["ops"], REVERT, refused, {"step": "propose"}, 303)
    assert api.get("client-quotas/user=ruled-sent")["quotas"] == {"producer_byte_rate": 2}


def test_a_part_of_a_revert_is_proposed_with_times(people: dict[str, Visitor], api: Api) -> None:
    change = changed(api, "user=ruled-part", 1, 2)
    preview = people["ops"].page(f"{REVERT}?changeId={change}&only=producer_byte_rate")
    for who, shown in (("dev", people["dev"].page(f"{REVERT}?changeId={change}")), ("ops", preview)):
        wrong = step(people[who], REVERT, shown, {"step": "propose", "applyAt": "tomorrow"}, 400).text
        assert 'name="applyAt" value="tomorrow"' in wrong
        assert "applyAt" in wrong.partition('role="alert"')[2].partition("</p>")[0]
    made = request_of(people["ops"], api, step(people["ops"], REVERT, wrong, {"step": "propose", "applyAt": ""}, 303))
    assert made["changes"][0]["diff"] == [{"key": "producer_byte_rate", "before": 2, "after": 1}]
    late = people["ops"].page(f"{REVERT}?changeId={change}")
    changed(api, "user=ruled-part", 3)
    assert ways(step(people["ops"], REVERT, late, {"step": "propose"}, 409).text) == []


def test_a_revert_is_made_past_the_rules(emergency: Visitor, api: Api) -> None:
    change = changed(api, "user=ruled-urgent", 1, 2)
    preview = emergency.page(f"{REVERT}?changeId={change}")
    assert ways(preview) == ["propose", "break-glass"]
    refused = step(emergency, REVERT, preview, {"step": "break-glass", "emergency": " "}, 400).text
    assert "needs the reason of the emergency" in text_of(refused)
    done = step(emergency, REVERT, refused, {"step": "break-glass", "emergency": WHY}, 303)
    again = step(emergency, REVERT, refused, {"step": "break-glass", "emergency": WHY}, 303)
    assert again.headers["location"] == done.headers["location"]
    assert api.get("client-quotas/user=ruled-urgent")["quotas"] == {"producer_byte_rate": 1}
    [made] = api.get("change-requests", entity="user=ruled-urgent")["items"]
    assert (made["kind"], made["state"], made["reason"]) == ("break-glass", "open", WHY)
    assert f'href="{HOME}/requests/{made["id"]}"' in emergency.page(done.headers["location"])


def test_a_refused_revert_can_be_bypassed_and_not_proposed(
    people: dict[str, Visitor], emergency: Visitor, api: Api
) -> None:
    wait_for(lambda: (api.client.get(CLUSTER).json()["recorded"] or {}).get("since"))
    for entity, selected in (
        ("user=protected-old", "changeId={change}"),
        ("user=protected-moment", "entity=user=protected-moment&facet=client-quotas&to={revision}"),
    ):
        first, change = (changed(api, entity, rate, glass="a test") for rate in (1, 2))
        revision = api.get(f"audit/{first}")["revision"]
        path = f"{REVERT}?{selected.format(change=change, revision=revision)}"
        assert ways(people["ops"].get(path).text) == []
        preview = emergency.get(path).text
        assert ways(preview) == ["break-glass"]
        assert "protected-users" in text_of(preview.partition('role="alert"')[2].partition("</p>")[0])
        step(emergency, REVERT, preview, {"step": "break-glass", "emergency": "now"}, 303)
        assert api.get(f"client-quotas/{entity}")["quotas"] == {"producer_byte_rate": 1}


def test_without_a_rule_a_revert_is_made_or_proposed(people: dict[str, Visitor], api: Api) -> None:
    change = changed(api, "user=unruled", 1, 2)
    preview = people["ops"].page(f"{REVERT}?changeId={change}")
    assert ways(preview) == ["save", "propose"]
    step(people["ops"], REVERT, preview, {"step": "save"}, 303)
    assert api.get("client-quotas/user=unruled")["quotas"] == {"producer_byte_rate": 1}
