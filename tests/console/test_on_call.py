"""An on-call engineer starts at /console with the name of a team, follows links and forms alone, and undoes a change."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from tests.console.visitor import Visitor
    from tests.support.service import Service


def link(page: str, part: str) -> str:
    """Return the address of the first link whose address has a part."""
    found = [html.unescape(each) for each in re.findall(r'href="([^"]+)"', page)]
    return next(each for each in found if part in each)


def test_producers_of_team_payments_are_throttled(visitor: Visitor, service: Service) -> None:
    headers = {"Authorization": f"Bearer {service.token}"}
    with httpx.Client(base_url=f"{service.url}/v1/clusters/default", headers=headers, trust_env=False) as api:

        def set_rate(rate: int, reason: str) -> None:
            body = {"quotas": {"producer_byte_rate": rate}}
            params = {"reason": reason, "ticket": "OPS-4412"}
            api.put("/client-quotas/user=payments-app", json=body, params=params).raise_for_status()

        set_rate(10485760, "the team's budget")
        set_rate(1048576, "lower batch quotas")
        search = link(visitor.page("/console/"), "/entities")
        found = visitor.page(f"{search}?prefix=payments")
        entity = link(found, "user=payments-app")
        why = visitor.page(entity)
        for word in ("producer_byte_rate", "1 MiB/s", "in force", "User:admin", "lower batch quotas"):
            assert word in why
        change = visitor.page(link(visitor.page(link(why, "/history")), "/audit/"))
        assert re.search(r"from\s+<span title=.10485760.>10 MiB/s</span>\s+to\s+<span title=.1048576.>1 MiB/s", change)
        preview = visitor.page(link(change, "audit:revert"))
        form = preview[preview.rindex('<form method="post"') :]
        fields = dict(re.findall(r'<input[^>]*name="([^"]*)" value="([^"]*)"', form))
        done = visitor.post("/console/clusters/default/audit:revert", {**fields, "reason": "payments was throttled"})
        assert done.status_code == 303
        assert "payments was throttled" in visitor.page(done.headers["location"])
        assert "10 MiB/s" in visitor.page(entity)
        assert api.get("/client-quotas/user=payments-app").json()["quotas"] == {"producer_byte_rate": 10485760}
