"""The pages of the audit trail and of reverts: what they show of freezes and secrets, and a form that is sent twice."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import pytest

from tests.console.api import CLUSTER, Api
from tests.console.test_editing import HOME, MARKUP, step
from tests.console.visitor import Visitor, text_of
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    import httpx

    from tests.support.service import Service


@pytest.fixture
def recorded(api: Api) -> None:
    """The trail has begun, so that the past is known from now on."""
    wait_for(lambda: (api.client.get(CLUSTER).json()["recorded"] or {}).get("since"))


def post(api: Api, verb: str) -> httpx.Response:
    """Freeze or thaw the cluster."""
    return api.client.post(f"{CLUSTER}:{verb}", json={"reason": f"{verb}-for-a-test"})


@pytest.mark.parametrize("name", ["since", "until"])
def test_an_age_before_all_time_is_refused(visitor: Visitor, name: str) -> None:
    refused = visitor.get(f"{HOME}/audit?{name}=999999d")
    assert refused.status_code == 400
    assert name in refused.text.partition('role="alert"')[2].partition("</p>")[0]


def test_a_freeze_is_a_change_of_the_cluster_without_a_revert(visitor: Visitor, api: Api) -> None:
    frozen = post(api, "freeze")
    try:
        frozen.raise_for_status()
        assert "default is frozen: freeze-for-a-test" in text_of(visitor.page("/console/"))
        [change] = [each for each in api.get("audit")["items"] if each["reason"] == "freeze-for-a-test"]
        shown = visitor.page(f"{HOME}/audit/{change['changeId']}")
        assert "<h1>Change of the cluster</h1>" in shown
        assert "default cluster" not in shown
        assert f"{HOME}/entities/cluster" not in shown
        assert "audit:revert" not in shown
        assert "the cluster: set frozen to freeze-for-a-test" in text_of(shown)
        assert "the cluster: set frozen to freeze-for-a-test" in text_of(visitor.page(f"{HOME}/audit"))
    finally:
        post(api, "thaw").raise_for_status()
    assert "the cluster: removed frozen" in text_of(visitor.page(f"{HOME}/audit"))


def test_a_cluster_is_frozen_and_thawed_by_those_who_may(visitor: Visitor, api: Api, service: Service) -> None:
    home = "/console/"
    rights = {"operation": "DESCRIBE_CONFIGS", "resourceType": "user", "name": "*", "patternType": "literal"}
    path = f"{HOME}/freeze"
    with Visitor(service, api.token("User:freeze-reader", rights)) as reader:
        wait_for(lambda: reader.sign_in().status_code == 303)
        assert 'value="freeze"' not in reader.page(home)
        refused = reader.post(path, {"step": "freeze", "reason": "an incident"}, page=home)
        assert (refused.status_code, 'role="alert"' in refused.text) == (403, True)
    assert visitor.post(path, {"step": "none"}, page=home).status_code == 400
    assert visitor.post(path, {"step": "freeze"}, page=home).status_code == 400  # without a reason
    assert visitor.post(path, {"step": "freeze", "reason": "an incident"}, page=home).status_code == 303
    try:
        shown = visitor.page(home)
        assert "default is frozen: an incident" in text_of(shown)
        assert "default is frozen, and writes are refused: an incident" in text_of(visitor.page(f"{HOME}/entities"))
        assert re.findall(r'name="step" value="(freeze|thaw)"', shown) == ["thaw"]
        rate = {"quotas": {"request_percentage": 1}}
        assert api.client.put(f"{CLUSTER}/client-quotas/user=frozen", json=rate).status_code == 409
    finally:
        assert visitor.post(path, {"step": "thaw", "reason": "it is over"}, page=home).status_code == 303
    assert re.findall(r'name="step" value="(freeze|thaw)"', visitor.page(home)) == ["freeze"]
    assert "is frozen" not in text_of(visitor.page(f"{HOME}/entities"))


def test_a_revert_that_is_sent_twice_is_done_once(visitor: Visitor, api: Api) -> None:
    change = api.put("client-quotas/user=undone", {"quotas": {"request_percentage": 1}})
    preview = visitor.page(f"{HOME}/audit:revert?changeId={change}")
    first = step(visitor, f"{HOME}/audit:revert", preview, {}, 303)
    again = step(visitor, f"{HOME}/audit:revert", preview, {}, 303)
    assert again.headers["location"] == first.headers["location"]
    assert "Saved" in visitor.page(again.headers["location"])
    assert len(api.get("client-quotas/user=undone/history")["items"]) == 2


def test_a_preview_names_the_secrets_that_it_changes(visitor: Visitor, api: Api) -> None:
    change = api.put("configs/broker=31", {"configs": {"key.of.a.plugin": "s3cr3t-of-a-plugin"}})
    preview = visitor.page(f"{HOME}/audit:revert?changeId={change}")
    assert '<span class="mono">key.of.a.plugin</span> is a secret' in preview
    assert "s3cr3t" not in preview
    step(visitor, f"{HOME}/audit:revert", preview, {}, 303)
    assert api.get("configs/broker=31", absent="empty")["configs"] == {}


def test_a_preview_is_shown_again_where_it_would_leave_out_more(visitor: Visitor, api: Api) -> None:
    change = api.put("client-quotas/user=hindered", {"quotas": {"request_percentage": 1}})
    since = api.get(f"audit/{change}")["createdAt"]
    preview = visitor.get(f"{HOME}/audit:revert", params={"principal": "User:admin", "since": since}).text
    for verb in ("freeze", "thaw"):  # no revert undoes them
        post(api, verb).raise_for_status()
    again = step(visitor, f"{HOME}/audit:revert", preview, {}).text
    assert "something else than the preview showed" in again
    assert api.get("client-quotas/user=hindered")["quotas"] == {"request_percentage": 1}


@pytest.mark.usefixtures("recorded")
def test_an_entity_returns_to_a_moment(visitor: Visitor, api: Api) -> None:
    path = "client-quotas/user=returned"
    for value in (1, 2, 3):
        api.put(path, {"quotas": {"request_percentage": value}}, reason=f"step-{value}")
    first = api.get(f"{path}/history")["items"][-1]["revision"]
    history = visitor.page(f"{HOME}/entities/user=returned/history")
    links = [html.unescape(each) for each in re.findall(r'href="([^"]*audit:revert[^"]*)"', history)]
    assert links[-1] == f"{HOME}/audit:revert?entity=user%3Dreturned&facet=client-quotas&to={first}"
    assert len(links) == 2, "the newest state is that of now"
    preview = visitor.page(links[-1])
    assert f"{path}:revert" in preview
    api.put(path, {"quotas": {"request_percentage": 4}})
    again = step(visitor, f"{HOME}/audit:revert", preview, {}).text
    assert "something else than the preview showed" in again
    assert api.get(path)["quotas"] == {"request_percentage": 4}
    done = step(visitor, f"{HOME}/audit:revert", again, {"reason": "back-to-the-first"}, 303)
    twice = step(visitor, f"{HOME}/audit:revert", again, {}, 303)
    assert twice.headers["location"] == done.headers["location"]
    assert "back-to-the-first" in visitor.page(done.headers["location"])
    assert api.get(path)["quotas"] == {"request_percentage": 1}


@pytest.mark.usefixtures("recorded")
def test_a_moment_is_an_age_a_time_or_a_revision(visitor: Visitor, api: Api) -> None:
    api.put("configs/topic=returned", {"configs": {"retention.ms": "1"}})
    page = f"{HOME}/audit:revert?entity=topic=returned&facet=configs"
    now = api.get("configs/topic=returned", view="full")["status"]["revision"]
    shown = visitor.page(f"{page}&to={now}")
    assert "have their earlier values already" in shown
    assert f"confplane revert topic=returned --to {now}" in shown
    for wrong, status in (("yesterday", 400), ("", 400), ("3000d", 410)):
        refused = visitor.get(f"{page}&to={wrong}")
        assert refused.status_code == status, wrong
        assert 'role="alert"' in refused.text
    for entity, facet in (("topic=returned", "client-quotas"), ("nobody", "configs"), (MARKUP, "configs")):
        absent = visitor.get(f"{HOME}/audit:revert", params={"entity": entity, "facet": facet, "to": "1h"})
        assert absent.status_code == 404
        assert "<img" not in absent.text
