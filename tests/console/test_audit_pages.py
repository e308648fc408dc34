"""The pages of the audit trail and of reverts: what they show of freezes and secrets, and a form that is sent twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.console.test_editing import HOME, Api, step

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from tests.console.visitor import Visitor
    from tests.support.service import Service


@pytest.fixture
def api(service: Service) -> Iterator[Api]:
    """The API of the module's service."""
    opened = Api(service)
    with opened.client:
        yield opened


def post(api: Api, verb: str) -> httpx.Response:
    """Freeze or thaw the cluster."""
    cluster = str(api.client.base_url).rstrip("/")
    return api.client.post(f"{cluster}:{verb}", json={"reason": f"{verb}-for-a-test"})


@pytest.mark.parametrize("name", ["since", "until"])
def test_an_age_before_all_time_is_refused(visitor: Visitor, name: str) -> None:
    refused = visitor.get(f"{HOME}/audit?{name}=999999d")
    assert refused.status_code == 400
    assert name in refused.text.partition('role="alert"')[2].partition("</p>")[0]


def test_a_freeze_is_a_change_of_the_cluster_without_a_revert(visitor: Visitor, api: Api) -> None:
    frozen = post(api, "freeze")
    try:
        frozen.raise_for_status()
        [change] = [each for each in api.get("/audit")["items"] if each["reason"] == "freeze-for-a-test"]
        shown = visitor.page(f"{HOME}/audit/{change['changeId']}")
        assert "<h1>Change of the cluster</h1>" in shown
        assert "default cluster" not in shown
        assert f"{HOME}/entities/cluster" not in shown
        assert "audit:revert" not in shown
        assert "the cluster:" in visitor.page(f"{HOME}/audit")
    finally:
        post(api, "thaw").raise_for_status()


def test_a_revert_that_is_sent_twice_is_done_once(visitor: Visitor, api: Api) -> None:
    change = api.put("/client-quotas/user=undone", "quotas", {"request_percentage": 1})
    preview = visitor.page(f"{HOME}/audit:revert?changeId={change}")
    first = step(visitor, f"{HOME}/audit:revert", preview, {}, 303)
    again = step(visitor, f"{HOME}/audit:revert", preview, {}, 303)
    assert again.headers["location"] == first.headers["location"]
    assert "Saved" in visitor.page(again.headers["location"])
    assert len(api.get("/client-quotas/user=undone/history")["items"]) == 2


def test_a_preview_names_the_secrets_that_it_changes(visitor: Visitor, api: Api) -> None:
    change = api.put("/configs/broker=31", "configs", {"key.of.a.plugin": "s3cr3t-of-a-plugin"})
    preview = visitor.page(f"{HOME}/audit:revert?changeId={change}")
    assert '<span class="mono">key.of.a.plugin</span> is a secret' in preview
    assert "s3cr3t" not in preview
    step(visitor, f"{HOME}/audit:revert", preview, {}, 303)
    assert api.get("/configs/broker=31", absent="empty")["configs"] == {}


def test_a_preview_is_shown_again_where_it_would_leave_out_more(visitor: Visitor, api: Api) -> None:
    change = api.put("/client-quotas/user=hindered", "quotas", {"request_percentage": 1})
    since = api.get(f"/audit/{change}")["createdAt"]
    preview = visitor.get(f"{HOME}/audit:revert", params={"principal": "User:admin", "since": since}).text
    for verb in ("freeze", "thaw"):  # no revert undoes them
        post(api, verb).raise_for_status()
    again = step(visitor, f"{HOME}/audit:revert", preview, {}).text
    assert "something else than the preview showed" in again
    assert api.get("/client-quotas/user=hindered")["quotas"] == {"request_percentage": 1}
