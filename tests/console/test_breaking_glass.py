"""Changes past the rules: written from the review of an edit, with a reason, and acknowledged by another person."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.console.api import Api
from tests.console.test_change_request_pages import people, service_options, signed_in, tokens
from tests.console.test_change_request_pages import step as review
from tests.console.test_editing import HOME, step
from tests.console.test_every_page import MARKUP
from tests.console.test_proposing import edit_path, reviewed
from tests.console.visitor import Visitor, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.service import Service

__all__ = ["people", "service_options", "tokens"]

WHY = f"disks are full: \N{EN DASH} {MARKUP}"


@pytest.fixture(scope="module")
def emergency_token(service: Service) -> str:
    """The token of somebody who may write past the rules."""
    grants = [{"operation": each, "resourceType": "cluster"} for each in ("ALTER_CONFIGS", "BYPASS_RULES", "PROPOSE")]
    with Api(service) as opened:
        return opened.token("User:emergency", *grants)


@pytest.fixture
def emergency(service: Service, emergency_token: str) -> Iterator[Visitor]:
    """The browser of somebody who may write past the rules."""
    with Visitor(service, emergency_token) as opened:
        signed_in(opened, "BYPASS_RULES on")
        yield opened


def ways(page: str) -> set[str]:
    """Return the ways to write that a review offers."""
    return set(re.findall(r'name="step" value="(save|propose|break-glass)"', page))


def test_a_change_is_written_past_an_approval_and_acknowledged(
    people: dict[str, Visitor], emergency: Visitor, api: Api
) -> None:
    path = edit_path("user=ruled-glass")
    page = reviewed(emergency, path, "producer_byte_rate", "1048576", reason="", ticket="INC-1")
    assert ways(page) == {"propose", "break-glass"}
    assert ways(reviewed(people["ops"], path, "producer_byte_rate", "1048576")) == {"propose"}
    refused = step(emergency, path, page, {"step": "break-glass", "emergency": " \t"}, 400).text
    assert "needs the reason of the emergency" in text_of(refused)
    assert api.get("change-requests", entity="user=ruled-glass")["items"] == []

    done = step(emergency, path, refused, {"step": "break-glass", "emergency": WHY}, 303).headers["location"]
    assert api.get("client-quotas/user=ruled-glass")["quotas"] == {"producer_byte_rate": 1048576}
    [made] = api.get("change-requests", entity="user=ruled-glass")["items"]
    assert (made["kind"], made["state"], made["reason"], made["ticket"]) == ("break-glass", "open", WHY, "INC-1")
    change = emergency.page(done)
    assert f'href="{HOME}/requests/{made["id"]}"' in change
    assert f"Written past the rules: “{WHY}”. Another person has to acknowledge it" in text_of(change)
    assert MARKUP not in change

    own, other = emergency.page(f"{HOME}/requests/{made['id']}"), people["sre"].page(f"{HOME}/requests/{made['id']}")
    assert ">Acknowledge<" not in own
    assert ">Acknowledge<" in other
    assert "producer_byte_rate 1 MiB/s" in text_of(other), "who acknowledges sees what was written"
    assert done.partition("?")[0] in other
    assert review(people["sre"], made["id"], "approve").status_code == 303
    assert "is acknowledged" in text_of(emergency.page(done))


def test_a_form_sent_twice_breaks_the_glass_once(emergency: Visitor, api: Api) -> None:
    path = edit_path("user=ruled-twice")
    page = reviewed(emergency, path, "request_percentage", "50", duration="6h")
    assert ways(page) == {"break-glass"}, "a request has no end"
    first, second = (step(emergency, path, page, {"step": "break-glass", "emergency": "now"}, 303) for _ in "12")
    assert first.headers["location"] == second.headers["location"]
    assert len(api.get("change-requests", entity="user=ruled-twice")["items"]) == 1
    assert len(api.get("schedules", entity="user=ruled-twice")["items"]) == 1


def test_a_refusal_of_a_rule_can_be_bypassed_and_not_proposed(
    people: dict[str, Visitor], emergency: Visitor, api: Api
) -> None:
    path = edit_path("user=protected-a")
    assert "Who is affected" not in reviewed(people["ops"], path, "producer_byte_rate", "5")
    page = reviewed(emergency, path, "producer_byte_rate", "5")
    assert ways(page) == {"break-glass"}
    assert "protected-users" in text_of(page.partition('role="alert"')[2].partition("</p>")[0])
    step(emergency, path, page, {"step": "break-glass", "emergency": "now"}, 303)
    assert api.get("client-quotas/user=protected-a")["quotas"] == {"producer_byte_rate": 5}


def test_the_glass_does_not_help_against_a_value_that_is_not_valid(emergency: Visitor, api: Api) -> None:
    path = edit_path("user=ruled-invalid")
    page = reviewed(emergency, path, "producer_byte_rate", "-5")
    assert "Who is affected" not in page
    page = reviewed(emergency, path, "producer_byte_rate", "5")
    step(emergency, path, page, {"step": "break-glass", "emergency": "now", "value producer_byte_rate": "-5"}, 400)
    assert api.get("client-quotas", prefix="ruled-invalid")["items"] == []


def test_within_the_rules_there_is_no_glass_to_break(emergency: Visitor) -> None:
    assert ways(reviewed(emergency, edit_path("user=unruled"), "producer_byte_rate", "5")) == {"save", "propose"}
