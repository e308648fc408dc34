"""Definitions of configs: as JSON with filters, and as a page."""

from __future__ import annotations

import base64
import hashlib
import re
from html import unescape
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from confplane.api.definitions import render_page
from confplane.api.responses import prefers
from confplane.domain.definitions import ConfigKind
from tests.support.catalogs import ZOOKEEPER
from tests.support.pages import Page
from tests.support.service import Service, ServiceInThread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support import servers
    from tests.support.facets import ConfplaneClient

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


class Browser:
    """Asks as a browser does, with a token."""

    def __init__(self, service: Service, client: httpx.Client) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {service.token}", "Accept": BROWSER}
        self.url = f"{service.url}/v1/clusters/default/config-definitions"

    def get(self, url: str | None = None, *, accept: str = BROWSER, **params: str) -> httpx.Response:
        return self._client.get(url or self.url, headers=self._headers | {"Accept": accept}, params=params)


@pytest.fixture(scope="module")
def page(service: Service) -> Iterator[Browser]:
    with httpx.Client(trust_env=False) as client:
        yield Browser(service, client)


async def definitions(client: ConfplaneClient, **params: str) -> list[dict[str, Any]]:
    answer = await client.request("GET", "config-definitions", params=params)
    assert answer.status == 200
    assert answer.body["kafkaVersion"] == params.get("release", "3.9")
    assert answer.body["releases"] == ["3.9", "4.0", "4.1", "4.2", "4.3", "4.4"]
    assert answer.body["nextPageToken"] is None
    items: list[dict[str, Any]] = answer.body["items"]
    return items


async def test_everything_is_there(client: ConfplaneClient) -> None:
    items = await definitions(client)
    by_section: dict[str, list[str]] = {}
    for item in items:
        by_section.setdefault(item["section"], []).append(item["name"])
    assert list(by_section) == ["topic", "broker", "quota", "producer", "consumer"]
    for kind in (ConfigKind.TOPIC, ConfigKind.BROKER, ConfigKind.PRODUCER, ConfigKind.CONSUMER):
        assert by_section[kind] == sorted(ZOOKEEPER.of(kind))
    assert by_section["quota"] == [
        "connection_creation_rate", "consumer_byte_rate", "controller_mutation_rate", "producer_byte_rate",
        "request_percentage",
    ]  # fmt: skip


async def test_one_of_each(client: ConfplaneClient) -> None:
    (topic,) = [item for item in await definitions(client, entityType="topic") if item["name"] == "retention.ms"]
    assert topic == {
        "section": "topic",
        "name": "retention.ms",
        "type": "LONG",
        "default": "604800000",
        "required": False,
        "valid": "[-1,...]",
        "importance": "MEDIUM",
        "dynamic": True,
        "scope": "per-topic",
        "settableOn": ["topic"],
        "sensitive": False,
        "internal": False,
        "synonyms": [
            {"name": "log.retention.ms", "factor": 1},
            {"name": "log.retention.minutes", "factor": 60_000},
            {"name": "log.retention.hours", "factor": 3_600_000},
        ],
        "group": [],
        "listenerPrefix": None,
        "prefixRequired": False,
        "unit": None,
        "description": "At what age in milliseconds segments are deleted; -1 keeps them for ever.",
        "documentation": "https://kafka.apache.org/39/documentation.html#topicconfigs_retention.ms",
        "releases": ["3.9", "4.0", "4.1", "4.2", "4.3", "4.4"],
    }
    (key,) = await definitions(client, search="ssl.keystore.key", entityType="broker")
    assert (key["scope"], key["sensitive"], key["prefixRequired"]) == ("per-broker", True, True)
    assert key["listenerPrefix"] == "listener.name.<listener>."
    (acks,) = await definitions(client, search="acks", entityType="producer")
    assert (acks["dynamic"], acks["scope"], acks["settableOn"]) == (True, "per-entity", ["user", "user,client-id"])
    (linger,) = await definitions(client, search="linger", entityType="client")
    assert (linger["dynamic"], linger["settableOn"], linger["description"]) == (False, [], None)
    (rate,) = await definitions(client, entityType="ip")
    assert (rate["name"], rate["valid"], rate["unit"]) == (
        "connection_creation_rate", "[0,...,2147483647]", "connections per second",
    )  # fmt: skip


async def test_filters(client: ConfplaneClient) -> None:
    assert {item["section"] for item in await definitions(client, entityType="client")} == {"producer", "consumer"}
    dynamic = await definitions(client, entityType="broker", dynamic="true")
    assert len(dynamic) == 92
    assert all(item["dynamic"] for item in dynamic)
    fixed = await definitions(client, entityType="broker", dynamic="false")
    assert len(dynamic) + len(fixed) == len(ZOOKEEPER.of(ConfigKind.BROKER))
    assert [item["name"] for item in await definitions(client, entityType="client-id")] == [
        "consumer_byte_rate", "controller_mutation_rate", "producer_byte_rate", "request_percentage", "acks",
        "heartbeat.interval.ms", "session.timeout.ms",
    ]  # fmt: skip
    found = await definitions(client, search="RETENTION.ms", entityType="topic")
    assert [item["name"] for item in found] == ["delete.retention.ms", "local.retention.ms", "retention.ms"]
    assert await definitions(client, search="no such config") == []


async def test_another_release(client: ConfplaneClient) -> None:
    items = await definitions(client, release="4.4")
    assert list(dict.fromkeys(item["section"] for item in items)) == [
        "topic", "broker", "group", "client-metrics", "quota", "producer", "consumer",
    ]  # fmt: skip
    known = {(item["section"], item["name"]): item for item in items}
    assert ("topic", "message.format.version") not in known
    timeout = known["group", "consumer.session.timeout.ms"]
    assert (timeout["scope"], timeout["settableOn"], timeout["releases"]) == (
        "per-group", ["group"], ["4.0", "4.1", "4.2", "4.3", "4.4"],
    )  # fmt: skip
    assert timeout["synonyms"] == [{"name": "group.consumer.session.timeout.ms", "factor": 1}]
    assert known["client-metrics", "match"]["scope"] == "per-subscription"
    assert known["quota", "request_percentage"]["documentation"].startswith("https://kafka.apache.org/44/")
    assert [item["name"] for item in await definitions(client, release="4.0", entityType="client-metrics")] == [
        "interval.ms", "match", "metrics",
    ]  # fmt: skip
    assert await definitions(client, entityType="group") == []
    [linger] = await definitions(client, release="4.0", search="linger.ms", entityType="producer")
    assert linger["default"] == "5"


async def test_what_a_cluster_adds(module_chroot: str, module_database: servers.Database, tmp_path: Path) -> None:
    cluster = {"dynamic_client_configs": ["linger.ms"]}
    with ServiceInThread(tmp_path, connect=module_chroot, dsn=module_database.service_dsn, cluster=cluster) as service:
        async with service.client() as client:
            found = await definitions(client, entityType="client", dynamic="true")
    assert [item["name"] for item in found] == ["acks", "linger.ms", "heartbeat.interval.ms", "session.timeout.ms"]


def test_who_gets_what(page: Browser) -> None:
    answer = page.get()
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["vary"] == "Accept, Authorization, Confplane-On-Behalf-Of"
    assert "confplane-revision" in answer.headers
    plain = page.get(accept="*/*")
    assert plain.headers["content-type"] == "application/json"
    assert plain.headers["vary"] == answer.headers["vary"]
    assert httpx.get(page.url, headers={"Accept": BROWSER}, trust_env=False).status_code == 401
    assert page.get(page.url.replace("default", "nowhere")).status_code == 404


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        (None, False),
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("text/html", True),
        ("TEXT/HTML; q=0.5", True),
        ("text/*", True),
        (BROWSER, True),
        ("text/html, application/json", False),
        ("text/html;q=0.9, application/json", False),
        ("text/html, application/json;q=0.9", True),
        ("text/html;q=0, */*", False),
        ("application/json;q=0, */*", True),
        ("text/html;q=2", False),
        ("text/html;q=x", False),
        ("text/html;q=nan", False),
        ("text/htmlx, text", False),
    ],
)
def test_negotiation(accept: str | None, html: bool) -> None:  # noqa: FBT001 - a column
    assert prefers(accept, "text/html") is html


def test_the_table(page: Browser) -> None:
    text = page.get(entityType="topic").text
    found = Page(text)
    heads = re.findall(r'<th scope="col">(\w+)</th>', text)
    assert heads == ["Name", "Type", "Default", "Importance", "Description", "IsDynamic"]
    names = [row["data-name"] for row in found.all("tr") if "data-name" in row]
    assert names == sorted(ZOOKEEPER.of(ConfigKind.TOPIC))
    assert "per-topic" in found.texts
    assert {"lang": "en"} in found.all("html")
    assert all(head.get("scope") in {"col", "row"} for head in found.all("th"))
    assert len(found.all("caption")) == 1
    assert [field["name"] for field in found.all("input") + found.all("select")] == [
        "search",
        "entityType",
        "dynamic",
        "release",
    ]
    assert {"value": "topic", "selected": None} in found.all("option")
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_names_and_values_are_whole(page: Browser) -> None:
    """Names and values break into lines between words at most, and the largest numbers are said in words."""
    text = page.get().text
    rows = {match[1]: match[2] for match in re.finditer(r'<tr id="([^"]+)"[^>]*>(.*?)</tr>', text, re.DOTALL)}
    for kind in (ConfigKind.TOPIC, ConfigKind.BROKER, ConfigKind.PRODUCER, ConfigKind.CONSUMER):
        for name, found in ZOOKEEPER.of(kind).items():
            row = rows[f"{kind}_{name}"]
            assert f'<th scope="row"><code>{name}</code></th>' in row
            if found.default:
                assert f"<code>{found.default}</code>" in unescape(row.replace("<wbr>", ""))
    assert re.search(
        r"<code>9223372036854775807</code>\s*<small>the largest LONG</small>", rows["topic_flush.messages"]
    )
    assert "<small>2147483647 is the largest INT</small>" in rows["quota_connection_creation_rate"]
    between = re.findall(r"(.)<wbr>(.)", text)
    assert between
    assert all(before in ".,:;_" or (before.islower() and after.isupper()) for before, after in between)
    assert not [after for before, after in between if before == "." and after.isdigit()]
    assert "the largest" not in rows["topic_retention.ms"]


def test_the_search_works_without_a_script(page: Browser) -> None:
    """A form sends all of its fields, the empty ones as well."""
    text = page.get(search="retention", entityType="", dynamic="").text
    names = [row["data-name"] or "" for row in Page(text).all("tr") if "data-name" in row]
    assert len(names) > 10
    assert all("retention" in name for name in names)
    assert {"value": "retention"}.items() <= Page(text).all("input")[0].items()


def test_it_needs_no_network_and_allows_only_its_own_script(page: Browser) -> None:
    answer = page.get()
    found = Page(answer.text)
    assert not [tag for tag, attributes in found.tags if "src" in attributes or tag in {"link", "img", "iframe"}]
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on") or name == "style"]
    policy = answer.headers["content-security-policy"]
    for tag in ("style", "script"):
        (body,) = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_everything_is_escaped(page: Browser) -> None:
    nasty = "\"'><script>alert(1)</script>&"
    text = page.get(search=nasty).text
    assert "<script>alert" not in text
    assert Page(text).all("input")[0]["value"] == nasty
    row = {
        "section": "topic", "name": nasty, "type": nasty, "default": nasty, "required": False, "valid": nasty,
        "importance": "LOW", "dynamic": True, "scope": nasty, "settableOn": [nasty], "sensitive": True,
        "internal": True, "synonyms": [{"name": nasty, "factor": 2}], "group": [], "listenerPrefix": nasty,
        "prefixRequired": True, "unit": nasty, "description": nasty, "documentation": nasty, "releases": [],
    }  # fmt: skip
    options: dict[str, Any] = {"cluster": nasty, "release": nasty, "entity_type": nasty, "search": nasty}
    rendered = render_page([row], **options, dynamic=True).decode()
    assert "<script>alert" not in rendered
    assert len(Page(rendered).all("script")) == 1
    assert [found["data-name"] for found in Page(rendered).all("tr") if "data-name" in found] == [nasty]
    assert len(Page(rendered).all("td")) == 5
