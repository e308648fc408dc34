"""Names of 249 characters without a break fit on each page that shows them, on wide and narrow screens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.browser.test_on_call import api, set_rate

if TYPE_CHECKING:
    import httpx

    from tests.browser.tab import Tab

__all__ = ["api"]

_CLUSTER: Final = "/console/clusters/default"
_NAME: Final = "n" * 249


def test_long_names_do_not_widen_the_pages(tab: Tab, api: httpx.Client) -> None:
    entity = f"user={_NAME},client-id={_NAME}"
    set_rate(api, entity, 1048576, reason=_NAME)
    set_rate(api, entity, 2097152, ticket="OPS-1", expiresIn="3600")
    [change, *_] = api.get(f"/v1/clusters/default/client-quotas/{entity}/history").json()["items"]
    page = f"{_CLUSTER}/entities/{entity}"
    for path in (
        "/console",
        f"{_CLUSTER}/entities?prefix=n",
        page,
        f"{page}/history",
        f"{page}/clients",
        f"{page}/access",
        f"{page}/edit/client-quotas",
        f"{_CLUSTER}/schedules",
        f"{_CLUSTER}/audit",
        f"{_CLUSTER}/audit/{change['changeId']}",
        f"{_CLUSTER}/audit:revert?changeId={change['changeId']}",
    ):
        response = tab.page.goto(path, wait_until="networkidle")
        assert response is not None
        assert response.ok, path
        tab.check_width()
