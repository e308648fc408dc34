"""Every page that links lead to: text that users control stays text, and nobody sees what the API does not show them."""

from __future__ import annotations

import html
import re
from collections import deque
from typing import TYPE_CHECKING

from confplane.domain.entities import Entity
from tests.console.api import CLUSTER, Api
from tests.console.test_pages import ENTITIES
from tests.console.visitor import Visitor
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.support.service import Service

MARKUP = "<img src=x onerror=alert(1)>\"'{{7*7}}</script>"
MOST = 300
"""Pages that are opened at most."""


def pages_of(visitor: Visitor, *paths: str) -> dict[str, str]:
    """Return the pages to which links lead from some pages, by address."""
    found: dict[str, str] = {}
    waiting = deque(paths)
    while waiting and len(found) < MOST:
        path = waiting.popleft()
        if path in found:
            continue
        response = visitor.get(path)
        assert response.status_code in {200, 303, 400, 403, 404, 409, 410}, (path, response.status_code)
        found[path] = response.text
        base = path.partition("?")[0]
        for link in re.findall(r'(?:href|hx-get)="([^"]+)"', response.text):
            address = html.unescape(link).partition("#")[0]
            address = base + address if address.startswith("?") else address
            if address.startswith("/console/") and "/assets/" not in address:
                waiting.append(address)
    return found


def test_markup_of_users_is_text_on_every_page(visitor: Visitor, service: Service, api: Api) -> None:
    user = f"User:{MARKUP}"
    all_users = {"resourceType": "user", "name": "*", "patternType": "literal", "note": MARKUP}
    rights = [{"operation": each, **all_users} for each in ("ALTER_CONFIGS", "REPORT", "DESCRIBE_CONFIGS")]
    token = api.token(user, *rights, groups=[f"Group:{MARKUP}"], note=MARKUP, owner=MARKUP)
    entity = Entity.of(user=MARKUP, client_id=MARKUP).id
    with Api(service, token) as theirs:
        client = theirs.client
        wait_for(lambda: client.get(f"{CLUSTER}/client-quotas/{entity}").status_code == 404)
        quotas = {"quotas": {"request_percentage": 1}}
        theirs.put(f"client-quotas/{entity}", quotas, reason=MARKUP, ticket=MARKUP)
        theirs.put(f"client-quotas/{entity}", {"quotas": {"request_percentage": 2}}, reason=MARKUP)
        poll = {
            "components": [
                {"entityType": kind, "matchType": "exact", "match": MARKUP} for kind in ("user", "client-id")
            ],
            "resolveEntity": True,
            "supportedConfigs": ["acks"],
            "clientInformation": {"softwareName": MARKUP, "softwareVersion": MARKUP},
        }
        client.post(f"{CLUSTER}/client-configs:describe", json=poll).raise_for_status()
        refused = client.put(f"{CLUSTER}/configs/topic=a", json={"configs": {MARKUP: MARKUP}})
        assert refused.status_code in {400, 403}
    api.put("configs/broker=41", {"configs": {f"a.plugin.{MARKUP}": MARKUP}}, reason=MARKUP)
    api.client.post(f"{CLUSTER}:freeze", json={"reason": MARKUP}).raise_for_status()
    wait_for(lambda: api.get("registrations", id=entity)["items"])
    try:
        home = "/console/clusters/default"
        paths = (
            f"{ENTITIES}/{entity}", f"{ENTITIES}/broker=41", f"{home}/audit?result=refused", f"{home}/access/tokens",
            f"{home}/access/grants", "/console/", f"{home}/access/who?resource=user:a",
        )  # fmt: skip
        found = pages_of(visitor, *paths)
    finally:
        api.client.post(f"{CLUSTER}:thaw", json={"reason": "a test"}).raise_for_status()
    assert len(found) > 25
    shown = "".join(html.unescape(page) for page in found.values())
    assert shown.count(MARKUP) > 40, "the text itself is shown"
    for path, page in found.items():
        assert not re.search(r"<img|(49|\}\})</script>|<script(?! (src|type)=)", page), path


def test_markup_in_a_query_is_text(visitor: Visitor) -> None:
    home = "/console/clusters/default"
    for path, names in {
        ENTITIES: ("prefix", "key", "value", "kind", "facet", "token"),
        f"{home}/audit": ("entity", "key", "principal"),
        f"{ENTITIES}/topic=marked/edit/configs": ("key",),
    }.items():
        for name in names:
            response = visitor.get(path, params={name: MARKUP})
            assert response.status_code in {200, 400}, (path, name)
            assert not re.search(r"<img|(49|\}\})</script>", response.text), (path, name)


def test_nobody_sees_more_than_the_api_shows(visitor: Visitor, service: Service, api: Api) -> None:
    seen = {"resourceType": "user", "name": "mine-", "patternType": "prefixed"}
    token = api.token("User:one-team", {"operation": "DESCRIBE_CONFIGS", **seen})
    for name in ("mine-app", "theirs-app"):
        api.put(f"client-quotas/user={name}", {"quotas": {"request_percentage": 1}}, reason=f"reason-of-{name}")
    secret = api.token("User:theirs-portal", note="theirs-note")
    with Visitor(service, token) as member:
        wait_for(lambda: member.sign_in().status_code == 303)
        wait_for(lambda: "mine-app" in member.page(ENTITIES))
        hidden = [path for path in pages_of(visitor, ENTITIES, "/console/") if "theirs" in path or "who" in path]
        assert hidden
        found = pages_of(member, "/console/", ENTITIES, *hidden)
    assert "reason-of-mine-app" in "".join(found.values())
    for path, page in found.items():
        assert not re.search("reason-of-theirs|theirs-portal|theirs-note", page), path
        assert "theirs-app" in path or "theirs-app" not in page, path
        assert secret not in page
