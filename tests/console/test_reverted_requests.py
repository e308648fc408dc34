"""Pages of change requests: reverts of applied ones, other times, and the approvals of each rule."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from confplane.domain.texts import rfc3339
from tests.console.test_change_request_pages import (
    REQUESTS,
    buttons,
    people,
    proposed,
    rate,
    service_options,
    step,
    tokens,
)
from tests.console.test_every_page import MARKUP
from tests.console.visitor import text_of

if TYPE_CHECKING:
    from tests.console.api import Api
    from tests.console.visitor import Visitor
    from tests.support.service import Service

__all__ = ["people", "service_options", "tokens"]


@pytest.fixture
def dev(people: dict[str, Visitor]) -> Visitor:
    """The browser of an author."""
    return people["dev"]


@pytest.fixture
def ops(people: dict[str, Visitor]) -> Visitor:
    """The browser of a reviewer."""
    return people["ops"]


def in_days(days: int) -> str:
    """Return the time some days from now."""
    return rfc3339((datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0))


def applied(dev: Visitor, ops: Visitor, request: str) -> None:
    """Have a request approved and applied."""
    assert step(ops, request, "approve").status_code == 303
    assert step(dev, request, "apply").status_code == 303


def attempt_of(visitor: Visitor, request: str) -> str:
    """Return the attempt of a form of a page, which is done once however often it is sent."""
    return str(re.findall(r'name="attempt" value="([^"]+)"', visitor.page(f"{REQUESTS}/{request}"))[0])


def shown(visitor: Visitor, request: str) -> str:
    """Return the text of a request's page."""
    return text_of(visitor.page(f"{REQUESTS}/{request}"))


def test_an_applied_request_is_reverted_by_another(
    service: Service, people: dict[str, Visitor], dev: Visitor, ops: Visitor, tokens: dict[str, str], api: Api
) -> None:
    api.put("client-quotas/user=ruled-undone", {"quotas": {"producer_byte_rate": 1048576}})
    request = proposed(service, tokens["dev"], rate("user=ruled-undone", 2097152))
    assert "revert" not in buttons(dev, request)
    applied(dev, ops, request)
    assert "revert" in buttons(dev, request)
    assert "revert" not in buttons(people["viewer"], request)
    typed = {"reason": MARKUP, "ticket": "CHG-7", "expiresAt": in_days(3), "attempt": attempt_of(dev, request)}
    done, again = (step(dev, request, "revert", **typed) for _ in range(2))
    assert done.headers["location"] == again.headers["location"]
    made = done.headers["location"].rpartition("/")[2]
    found = api.get(f"change-requests/{made}")
    assert (found["reverts"], found["reason"], found["ticket"]) == (request, MARKUP, "CHG-7")
    page = dev.page(f"{REQUESTS}/{made}")
    assert f'href="{REQUESTS}/{request}"' in page
    assert MARKUP not in page
    assert f'href="{REQUESTS}/{made}"' in dev.page(f"{REQUESTS}/{request}")
    assert "would give its keys their earlier values" in shown(dev, request)
    assert re.search(r'class="badge warn">reverting<', dev.page(f"{REQUESTS}/{request}"))
    assert "revert" not in buttons(dev, request)
    assert "producer_byte_rate 1 MiB/s" in text_of(page)

    applied(dev, ops, made)
    assert api.get("client-quotas/user=ruled-undone")["quotas"] == {"producer_byte_rate": 1048576}
    assert "gave its keys their earlier values" in shown(ops, request)
    assert request in ops.page(f"{REQUESTS}?state=reverted")


def test_a_revert_leaves_out_what_was_changed_since(
    service: Service, dev: Visitor, ops: Visitor, tokens: dict[str, str], api: Api
) -> None:
    request = proposed(service, tokens["dev"], rate("user=ruled-part-a", 2), rate("user=ruled-part-b", 2))
    applied(dev, ops, request)
    api.put("client-quotas/user=ruled-part-b", {"quotas": {"producer_byte_rate": 3}})
    refused = step(dev, request, "revert", reason="harmful")
    assert refused.status_code == 409
    assert 'role="alert"' in refused.text
    assert 'value="harmful"' in refused.text
    made = step(dev, request, "revert", partly="true").headers["location"].rpartition("/")[2]
    assert api.get(f"change-requests/{made}")["entities"] == ["user=ruled-part-a"]
    applied(dev, ops, made)
    assert "gave some of its keys their earlier values" in shown(dev, request)
    assert re.search(r'class="badge warn">reverted-partly<', dev.page(f"{REQUESTS}/{request}"))


def test_a_request_gets_other_times(
    service: Service, dev: Visitor, ops: Visitor, tokens: dict[str, str], api: Api
) -> None:
    request = proposed(service, tokens["dev"], rate("user=ruled-timed", 2))
    expires_at, apply_at = api.get(f"change-requests/{request}")["expiresAt"], in_days(2)
    assert step(ops, request, "approve").status_code == 303
    page = html.unescape(dev.page(f"{REQUESTS}/{request}"))
    assert f'name="expiresAt" value="{expires_at}"' in page
    wrong = step(dev, request, "revise", applyAt="tomorrow", expiresAt=expires_at)
    assert wrong.status_code == 400
    assert 'name="applyAt" value="tomorrow"' in wrong.text
    done = step(dev, request, "revise", applyAt=apply_at, expiresAt=expires_at)
    assert "as revision 2. Approvals of earlier content do not count any more" in text_of(
        dev.page(done.headers["location"])
    )
    found = api.get(f"change-requests/{request}")
    assert (found["applyAt"], found["expiresAt"], found["approvals"]) == (apply_at, expires_at, [])
    assert step(ops, request, "approve").status_code == 303
    assert re.search(r'class="badge good">scheduled<', dev.page(f"{REQUESTS}/{request}"))
    assert step(dev, request, "revise", applyAt="", expiresAt=in_days(9)).status_code == 303
    found = api.get(f"change-requests/{request}")
    assert (found["applyAt"], found["state"]) == (None, "open")
    assert found["expiresAt"] > expires_at


def test_each_rule_is_shown_with_its_approvals(
    service: Service, people: dict[str, Visitor], dev: Visitor, ops: Visitor, tokens: dict[str, str]
) -> None:
    request = proposed(service, tokens["dev"], rate("user=ruled-led-a", 2), rate("user=ruled-b", 2))
    two_people = "rule 'two-people' asks for an approval, for user ruled-b, user ruled-led-a"
    named = "rule 'named-people' asks for 2 approvals of User:ops, User:sre, for user ruled-led-a"
    before = shown(dev, request)
    assert f"missing {two_people}" in before
    assert f"2 missing {named}" in before
    assert step(ops, request, "approve").status_code == 303
    between = shown(dev, request)
    assert f"given {two_people}, given by User:ops" in between
    assert f"1 missing {named}, given by User:ops" in between
    assert step(people["sre"], request, "approve").status_code == 303
    assert f"given {named}, given by User:ops, User:sre" in shown(dev, request)
