"""The content of pages: what the API shows to the same token, and nothing else, with every name and value escaped."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import pytest

from confplane.domain.entities import Entity
from tests.console.api import CLUSTER, Api
from tests.console.visitor import Visitor, text_of
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.service import Service

HOSTILE = "<img src=x onerror=alert(1)>'\"{{7*7}}</script>"
ENTITIES = "/console/clusters/default/entities"


@pytest.fixture
def member(service: Service, api: Api) -> Iterator[Visitor]:
    """A browser of a caller who may describe the users of one team."""
    seen = {"resourceType": "user", "name": "seen-", "patternType": "prefixed"}
    with Visitor(service, api.token("User:member", {"operation": "DESCRIBE_CONFIGS", **seen})) as opened:
        wait_for(lambda: opened.sign_in().status_code == 303)
        yield opened


def listed(page: str) -> list[str]:
    """Return the ids of the entities that a page links to, in their order."""
    return list(dict.fromkeys(re.findall(rf'href="{ENTITIES}/([^"/?]+)"', page)))


def test_the_overview_shows_each_cluster_with_its_activity(visitor: Visitor, api: Api) -> None:
    api.put("client-quotas/user=active", {"quotas": {"producer_byte_rate": 1}})
    shown = text_of(visitor.page("/console/"))
    assert "default" in shown
    assert "healthy" in shown
    cells = text_of(visitor.page("/console/clusters/default/activity"))
    changes = api.get("audit", pageSize="500")["items"]
    assert str(len(changes)) in cells
    shortened = visitor.get("/console/clusters/default", follow_redirects=False)
    assert (shortened.status_code, shortened.headers["location"]) == (303, ENTITIES)


def test_a_search_finds_what_the_lists_of_the_api_have(visitor: Visitor, api: Api) -> None:
    for entity in (Entity.of(user="find-a"), Entity.of(user="find-a", client_id="x"), Entity.of(user="find b/é")):
        api.put(f"client-quotas/{entity.id}", {"quotas": {"producer_byte_rate": 1048576}})
    api.put("client-configs/user=find-a", {"configs": {"session.timeout.ms": "30000"}})
    api.put("configs/topic=find-topic", {"configs": {"retention.ms": "86400000"}})
    expected = {
        item["id"]
        for facet in ("client-quotas", "client-configs", "configs")
        for item in api.get(facet, prefix="find")["items"]
    }
    assert len(expected) == 4
    page = visitor.page(f"{ENTITIES}?prefix=find")
    assert set(listed(page)) == expected
    assert "producer_byte_rate 1 MiB/s" in text_of(page)
    assert listed(visitor.page(f"{ENTITIES}?prefix=find&kind=topic")) == ["topic=find-topic"]
    assert listed(visitor.page(f"{ENTITIES}?prefix=find&facet=client-configs")) == ["user=find-a"]
    assert "No entity fits" in visitor.page(f"{ENTITIES}?prefix=nothing-begins-so")
    part = visitor.get(f"{ENTITIES}?prefix=find", headers={"HX-Request": "true"}).text
    assert "<html" not in part
    assert set(listed(part)) == expected


def test_a_long_list_goes_on_page_by_page(visitor: Visitor, api: Api) -> None:
    expected = [f"user=many-{number:03d}" for number in range(120)]
    for entity_id in expected:
        api.put(f"client-quotas/{entity_id}", {"quotas": {"producer_byte_rate": 1}})
    found, path = [], "?prefix=many-&facet=client-quotas"
    while path:
        page = visitor.page(ENTITIES + html.unescape(path))
        found += listed(page)
        more = re.search(r'<a class="button" href="(\?[^"]+)"', page)
        path = more[1] if more else ""
    assert found == expected


def test_a_search_by_value_reads_all_entities_with_the_key(visitor: Visitor, api: Api) -> None:
    for number in range(3):
        api.put(f"client-quotas/user=valued-{number}", {"quotas": {"consumer_byte_rate": 7000 + number % 2}})
    page = visitor.page(f"{ENTITIES}?prefix=valued&key=consumer_byte_rate&value=7000")
    assert listed(page) == ["user=valued-0", "user=valued-2"]


def test_an_entity_shows_why_each_value_is_in_force(visitor: Visitor, api: Api) -> None:
    api.put("client-quotas/user=why", {"quotas": {"producer_byte_rate": 10485760}}, reason="capacity")
    api.put("client-quotas/user=why,client-id=app", {"quotas": {"producer_byte_rate": 1048576}}, reason="a <b>test</b>")
    page = visitor.page(f"{ENTITIES}/user=why,client-id=app")
    effective = api.get("client-quotas/user=why,client-id=app/effective")
    [rate] = [each for each in effective["quotas"] if each["key"] == "producer_byte_rate"]
    levels = re.findall(r'<li class="(wins|hidden)">.*?</li>', page, re.DOTALL)
    assert levels == ["wins"] + ["hidden"] * (len(rate["synonyms"]) - 1)
    words = text_of(page)
    assert "user why / client-id app 1 MiB/s in force user why 10 MiB/s hidden" in words
    assert "by User:admin : “a <b>test</b>”" in words.replace("User:admin:", "User:admin :")
    assert "Not set: user why / default client-id" in words


def test_a_level_has_the_unit_of_its_own_key(visitor: Visitor, api: Api) -> None:
    api.put("configs/broker=41", {"configs": {"log.retention.ms": "86400000"}})
    words = text_of(visitor.page(f"{ENTITIES}/broker=41"))
    assert "log.retention.ms · in force 1 d This broker 1 d in force" in words
    assert "Kafka's default log.retention.hours 168 hidden" in words


@pytest.mark.parametrize("entity_id", ["client-id=app-alone", "client-id=app-unset", "client-id", "ip"])
def test_entities_without_client_configs_show_their_quotas(visitor: Visitor, api: Api, entity_id: str) -> None:
    api.put("client-quotas/client-id=app-alone", {"quotas": {"producer_byte_rate": 1048576}})
    page = visitor.page(f"{ENTITIES}/{entity_id}")
    assert ("producer_byte_rate · in force 1 MiB/s" in text_of(page)) is (entity_id == "client-id=app-alone")
    assert "/edit/client-quotas" in page
    assert "/edit/client-configs" not in page
    assert "/edit/client-quotas" in visitor.page(f"{ENTITIES}/{entity_id}/history")
    assert ("Quotas of the client's user have precedence" in text_of(page)) is entity_id.startswith("client-id")
    assert ("this client is not limited" in text_of(page)) is (entity_id == "ip")


def test_the_history_of_an_entity_is_that_of_the_api(visitor: Visitor, api: Api) -> None:
    for rate, reason in ((1024, "first"), (2048, "second")):
        api.put("client-quotas/user=past", {"quotas": {"producer_byte_rate": rate}}, reason=reason, ticket="OPS-1")
    page = visitor.page(f"{ENTITIES}/user=past/history")
    reasons = re.findall(r"“(\w+)”", html.unescape(page))
    assert reasons == [each["reason"] for each in api.get("client-quotas/user=past/history")["items"]]
    assert "before producer_byte_rate 1 KiB/s + after producer_byte_rate 2 KiB/s" in text_of(page)


def test_the_clients_and_the_grants_of_an_entity_are_shown(visitor: Visitor, api: Api) -> None:
    grant = {"principal": "User:portal", "permission": "allow", "operation": "ALTER_CONFIGS", "resourceType": "user"}
    api.client.post("/v1/grants", json={**grant, "name": "granted", "note": HOSTILE[:30]}).raise_for_status()
    shown = visitor.page(f"{ENTITIES}/user=granted/access")
    assert "User:portal allowed ALTER_CONFIGS on user granted" in text_of(shown)
    assert "No client software has registered" in visitor.page(f"{ENTITIES}/user=granted/clients")


@pytest.mark.parametrize("entity_id", ["unknown=x", "user=%3Cscript%3E", "user=a,topic=b", "user=~3cx"])
def test_what_is_no_entity_is_an_error_in_words(visitor: Visitor, entity_id: str) -> None:
    for view in ("", "/history", "/clients", "/access"):
        response = visitor.get(f"{ENTITIES}/{entity_id}{view}")
        assert response.status_code in {400, 404}
        assert "<script>" not in response.text
        assert "Traceback" not in response.text


def test_a_caller_sees_what_the_api_shows_to_its_token(member: Visitor, visitor: Visitor, api: Api) -> None:
    for name in ("seen-one", "hidden-one"):
        api.put(f"client-quotas/user={name}", {"quotas": {"producer_byte_rate": 5}})
    for prefix in ("hidden", "seen"):
        assert listed(visitor.page(f"{ENTITIES}?prefix={prefix}")) == [f"user={prefix}-one"]
    headers = {"Authorization": f"Bearer {member.token}"}
    shown = api.client.get(f"{CLUSTER}/client-quotas", headers=headers).json()["items"]
    assert listed(member.page(ENTITIES)) == [item["id"] for item in shown] == ["user=seen-one"]
    assert "Values" in member.page(f"{ENTITIES}/user=seen-one")
    refused = member.get(f"{ENTITIES}/user=hidden-one")
    assert refused.status_code == 403
    absent = member.get(f"{ENTITIES}/user=hidden-none")
    assert absent.status_code == 403
    assert "User:member lacks the grant DESCRIBE_CONFIGS" in html.unescape(refused.text)
    assert "confplane grants create --principal User:member" in html.unescape(refused.text)
    assert member.get(f"{ENTITIES}/user=seen-one/access").status_code in {200, 403}


def test_a_caller_without_any_grant_is_told_so(service: Service, api: Api) -> None:
    with Visitor(service, api.token("User:nobody")) as nobody:
        wait_for(lambda: nobody.sign_in().status_code == 303)
        assert "You may describe nothing in this cluster" in nobody.page("/console/")
        assert listed(nobody.page(ENTITIES)) == []


def test_every_page_shows_the_same_as_a_command(visitor: Visitor, api: Api) -> None:
    api.put("client-quotas/user=shell", {"quotas": {"producer_byte_rate": 5}})
    for path, words in {
        "/console/": "confplane clusters",
        f"{ENTITIES}?prefix=shell": "confplane get --cluster default --prefix shell",
        f"{ENTITIES}/user=shell": "confplane effective user=shell --cluster default",
        f"{ENTITIES}/user=shell/history": "confplane history user=shell --cluster default",
    }.items():
        page = text_of(visitor.page(path))
        assert words in page
        assert "curl -sS" in page


def test_the_page_of_the_design_shows_every_part_of_the_stylesheet(visitor: Visitor) -> None:
    page = visitor.page("/console/design")
    [sheet] = re.findall(r'href="(/console/assets/console\.[^"]+)"', page)
    rules = re.sub(r"/\*.*?\*/", "", visitor.page(sheet), flags=re.DOTALL)
    classes = set(re.findall(r"\.([a-z][a-z-]*)", " ".join(re.findall(r"([^{}]+)\{", rules))))
    shown = {name for text in re.findall(r'class="([^"]*)"', page) for name in text.split()}
    assert classes
    assert classes - shown == {"alone", "or"}, "those of the sign-in"
