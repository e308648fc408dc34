"""The page of scheduled work: temporary changes with their next steps, early ends, pauses, and requests."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from confplane.domain.texts import rfc3339
from tests.console.api import CLUSTER
from tests.console.test_change_request_pages import people, rate, service_options, tokens
from tests.console.visitor import text_of

if TYPE_CHECKING:
    from tests.console.api import Api
    from tests.console.visitor import Visitor

__all__ = ["people", "service_options", "tokens"]

PAGE = "/console/clusters/default/schedules"
MARKUP = "<img src=x onerror=alert(1)>"


def begun(api: Api, entity: str) -> str:
    """Make a temporary change, and return its id."""
    api.put(f"client-quotas/{entity}", {"quotas": {"producer_byte_rate": 5}}, expiresIn="3600", reason=MARKUP)
    [made] = api.get("schedules", entity=entity)["items"]
    return str(made["changeId"])


def test_a_temporary_change_is_listed_and_ended_early(people: dict[str, Visitor], visitor: Visitor, api: Api) -> None:
    change = begun(api, "user=brief-a")
    page = visitor.page(PAGE)
    assert MARKUP not in page
    assert "The values before come back" in text_of(page)
    assert change in page
    assert "End now" not in people["viewer"].page(PAGE)
    assert visitor.post(PAGE, {"step": "end", "change": change}, page=PAGE).status_code == 303
    assert change not in visitor.page(PAGE)
    ended = visitor.page(f"{PAGE}?ended=true")
    assert change in ended
    assert "what it restored" in ended
    assert api.get("client-quotas", prefix="brief-a")["items"] == []
    refused = visitor.post(PAGE, {"step": "end", "change": "none"}, page=PAGE)
    assert refused.status_code in {400, 404}
    assert 'role="alert"' in refused.text
    assert visitor.post(PAGE, {"step": "none"}, page=PAGE).status_code == 400


def test_ends_are_paused_and_resumed(people: dict[str, Visitor], visitor: Visitor, api: Api) -> None:
    begun(api, "user=brief-b")
    assert 'value="pause"' not in people["viewer"].page(PAGE)
    assert visitor.post(PAGE, {"step": "pause", "reason": "an incident"}, page=PAGE).status_code == 303
    shown = visitor.page(PAGE)
    assert "No temporary change ends by itself: User:admin paused the ends" in text_of(shown)
    assert "if the pause has ended by then" in text_of(shown)
    assert re.findall(r'name="step" value="(pause|resume)"', shown) == ["resume"]
    assert visitor.post(PAGE, {"step": "resume"}, page=PAGE).status_code == 303
    assert api.get("schedules")["pause"] is None


def test_requests_with_a_time_say_what_they_wait_for(
    people: dict[str, Visitor], tokens: dict[str, str], api: Api
) -> None:
    later = rfc3339(datetime.now(UTC).replace(microsecond=0) + timedelta(days=1))
    headers = {"Authorization": f"Bearer {tokens['dev']}"}
    body = {"edits": [rate("user=ruled-later", 5)], "applyAt": later}
    made = api.client.post(f"{CLUSTER}/change-requests", json=body, headers=headers).raise_for_status().json()
    shown = html.unescape(people["dev"].page(PAGE))
    assert f"/requests/{made['id']}" in shown
    assert "It needs approvals" in text_of(shown)
    approval = {"digest": made["digest"]}
    ops = {"Authorization": f"Bearer {tokens['ops']}"}
    url = f"{CLUSTER}/change-requests/{made['id']}:approve"
    api.client.post(url, json=approval, headers=ops).raise_for_status()
    assert "It is applied" in text_of(people["dev"].page(PAGE))
