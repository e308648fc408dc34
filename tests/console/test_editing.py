"""Editing entities and reverting changes: forms, reviews, conflicts, secrets, and the audit trail."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.console.visitor import Visitor
    from tests.support.service import Service

HOME = "/console/clusters/default"
MARKUP = "<img src=x onerror=alert(1)>\"'"


class Api:
    """The API with the admin token."""

    def __init__(self, service: Service) -> None:
        self.client = httpx.Client(
            base_url=f"{service.url}/v1/clusters/default",
            headers={"Authorization": f"Bearer {service.token}"},
            trust_env=False,
        )

    def put(self, path: str, member: str, values: dict[str, Any], **query: str) -> str:
        """Set the content of an entity, and return the change's id."""
        answer = self.client.put(path, json={member: values}, params=query).raise_for_status()
        return answer.headers["confplane-change-id"]

    def get(self, path: str, **query: str) -> Any:
        """Return the JSON of a read."""
        return self.client.get(path, params=query).raise_for_status().json()


@pytest.fixture
def api(service: Service) -> Iterator[Api]:
    """The API of the module's service."""
    opened = Api(service)
    with opened.client:
        yield opened


def fields_of(page: str) -> dict[str, str]:
    """Return the fields of the form that a browser would send, besides unchecked boxes."""
    form = page[page.rindex('<form method="post" action="' + HOME) :]
    fields = {}
    for tag in re.findall(r"<input[^>]*>", form):
        name, value = re.search(r'name="([^"]*)"', tag), re.search(r'value="([^"]*)"', tag)
        if name and ('type="checkbox"' not in tag or " checked" in tag):
            fields[html.unescape(name[1])] = html.unescape(value[1]) if value else ""
    for name, options in re.findall(r'<select[^>]*name="([^"]*)"[^>]*>(.*?)</select>', form):
        chosen = re.search(r"<option selected>([^<]*)", options) or re.search(r"<option>([^<]*)", options)
        fields[html.unescape(name)] = html.unescape(chosen[1]) if chosen else ""
    return fields


def step(visitor: Visitor, path: str, page: str, typed: dict[str, str], status: int = 200) -> httpx.Response:
    """Send the form of a page, with some fields typed."""
    response = visitor.post(path, {**fields_of(page), **typed})
    assert response.status_code == status, response.text[-3000:]
    return response


def test_a_change_is_reviewed_saved_and_reverted(visitor: Visitor, api: Api) -> None:
    api.put("/client-quotas/user=edited", "quotas", {"producer_byte_rate": 10485760, "request_percentage": 200})
    path = f"{HOME}/entities/user=edited/edit/client-quotas"
    form = visitor.page(path)
    assert fields_of(form)["value producer_byte_rate"] == "10"
    assert fields_of(form)["unit producer_byte_rate"] == "MiB/s"
    review = step(
        visitor,
        path,
        form,
        {"value producer_byte_rate": "1.5", "remove request_percentage": "on", "reason": "too fast"},
    ).text
    assert "1.5 MiB/s" in review
    assert "now not set" in review
    assert "If-Match" in review
    assert api.get("/client-quotas/user=edited")["quotas"]["producer_byte_rate"] == 10485760
    saved = step(visitor, path, review, {"step": "save"}, 303)
    assert api.get("/client-quotas/user=edited")["quotas"] == {"producer_byte_rate": 1572864}
    change = visitor.page(saved.headers["location"])
    assert "Saved" in change
    assert "too fast" in change
    preview_path = html.unescape(re.findall(r'href="([^"]*audit:revert[^"]*)"', change)[0])
    preview = visitor.page(preview_path)
    reverted = step(visitor, f"{HOME}/audit:revert", preview, {"reason": "undo"}, 303)
    assert "undo" in visitor.page(reverted.headers["location"])
    assert api.get("/client-quotas/user=edited")["quotas"] == {
        "producer_byte_rate": 10485760,
        "request_percentage": 200,
    }


def test_a_review_is_repeated_where_somebody_else_was_faster(visitor: Visitor, api: Api) -> None:
    api.put("/client-quotas/user=raced", "quotas", {"producer_byte_rate": 1, "consumer_byte_rate": 1})
    path = f"{HOME}/entities/user=raced/edit/client-quotas"
    review = step(visitor, path, visitor.page(path), {"value producer_byte_rate": "2"}).text
    api.put(
        "/client-quotas/user=raced",
        "quotas",
        {"producer_byte_rate": 1, "consumer_byte_rate": 7, "request_percentage": 5},
    )
    again = step(visitor, path, review, {"step": "save"}).text
    assert "Somebody changed this entity" in again
    assert api.get("/client-quotas/user=raced")["quotas"]["producer_byte_rate"] == 1
    step(visitor, path, again, {"step": "save"}, 303)
    assert api.get("/client-quotas/user=raced")["quotas"] == {
        "producer_byte_rate": 2,
        "consumer_byte_rate": 7,
        "request_percentage": 5,
    }


def test_a_review_that_is_sent_twice_is_saved_once(visitor: Visitor, api: Api) -> None:
    path = f"{HOME}/entities/user=twice/edit/client-quotas"
    form = step(visitor, path, visitor.page(path), {"add": "request_percentage"}).text
    review = step(visitor, path, form, {"value request_percentage": "9"}).text
    first = step(visitor, path, review, {"step": "save"}, 303)
    step(visitor, path, review, {"step": "save"})
    assert first.headers["location"].startswith(f"{HOME}/audit/")
    assert len(api.get("/client-quotas/user=twice/history")["items"]) == 1


def test_the_last_key_can_be_removed(visitor: Visitor, api: Api) -> None:
    api.put("/configs/topic=emptied", "configs", {"retention.ms": "3600000"})
    path = f"{HOME}/entities/topic=emptied/edit/configs"
    form = visitor.page(path)
    assert (fields_of(form)["value retention.ms"], fields_of(form)["unit retention.ms"]) == ("1", "h")
    review = step(visitor, path, form, {"remove retention.ms": "on"}).text
    step(visitor, path, review, {"step": "save"}, 303)
    assert api.get("/configs/topic=emptied", absent="empty")["configs"] == {}


@pytest.mark.parametrize(("typed", "unit"), [("abc", "MiB/s"), ("-5", "B/s"), ("abc", "B/s"), ("0.0000001", "MiB/s")])
def test_an_error_is_next_to_its_field_and_keeps_what_was_typed(visitor: Visitor, typed: str, unit: str) -> None:
    path = f"{HOME}/entities/user=wrong/edit/client-quotas"
    form = visitor.page(f"{path}?key=producer_byte_rate")
    fields = {"value producer_byte_rate": typed, "unit producer_byte_rate": unit, "reason": MARKUP}
    refused = step(visitor, path, form, fields, 400).text
    assert 'class="problem"' in refused
    assert {name: fields_of(refused)[name] for name in fields} == fields
    assert "<img" not in refused


@pytest.mark.parametrize("key", ["ssl.key.password", "listener.name.x.ssl.key.password", "key.of.a.plugin"])
def test_a_secret_that_is_typed_is_in_no_page(visitor: Visitor, key: str) -> None:
    path = f"{HOME}/entities/broker=7/edit/configs"
    form = step(visitor, path, visitor.page(path), {"add": key}).text
    secret = "s3cr3t-of-a-broker"
    fields = {**fields_of(form), f"value {key}": secret}
    for name in ("review", "edit", "save", "add"):
        assert secret not in visitor.post(path, {**fields, "step": name}).text


def test_a_secret_stays_unless_it_is_typed(visitor: Visitor, api: Api) -> None:
    api.put("/configs/broker=8", "configs", {"log.cleaner.threads": "1", "key.of.a.plugin": "s3cr3t-of-a-plugin"})
    path = f"{HOME}/entities/broker=8/edit/configs"
    form = visitor.page(path)
    assert "s3cr3t" not in form
    review = step(visitor, path, form, {"value log.cleaner.threads": "2"}).text
    step(visitor, path, review, {"step": "save"}, 303)
    etag = api.get("/configs/broker=8", view="full")["status"]["fingerprints"]
    assert api.get("/configs/broker=8")["configs"] == {"key.of.a.plugin": None, "log.cleaner.threads": "2"}, etag


def test_markup_in_values_reasons_and_names_is_text(visitor: Visitor, api: Api) -> None:
    entity = "user=~3Cimg src~3Dx~3E".replace(" ", "~20")
    change = api.put(f"/client-quotas/{entity}", "quotas", {"request_percentage": 1}, reason=MARKUP, ticket=MARKUP)
    topic = api.put("/configs/topic=marked", "configs", {"leader.replication.throttled.replicas": "*"}, reason=MARKUP)
    for path in (
        f"{HOME}/entities/{entity}/edit/client-quotas",
        f"{HOME}/audit",
        f"{HOME}/audit/{change}",
        f"{HOME}/audit/{topic}",
        f"{HOME}/audit:revert?changeId={change}",
        f"{HOME}/audit?entity={MARKUP}&key={MARKUP}&principal={MARKUP}",
        f"{HOME}/entities/topic=marked/edit/configs?key={MARKUP}",
    ):
        shown = visitor.get(path).text
        assert "<h1>" in shown, path
        assert "<img" not in shown, path


def test_a_revert_over_later_changes_asks_first(visitor: Visitor, api: Api) -> None:
    first = api.put("/client-quotas/user=later", "quotas", {"request_percentage": 1})
    api.put("/client-quotas/user=later", "quotas", {"request_percentage": 2})
    refused = visitor.get(f"{HOME}/audit:revert?changeId={first}")
    assert refused.status_code == 409
    assert "Changed later" in refused.text
    forced = visitor.page(f"{HOME}/audit:revert?changeId={first}&force=true")
    api.put("/client-quotas/user=later", "quotas", {"request_percentage": 3})
    again = step(visitor, f"{HOME}/audit:revert", forced, {})
    assert "something else than the preview showed" in again.text
    assert api.get("/client-quotas/user=later")["quotas"] == {"request_percentage": 3}


def test_audit_is_filtered_and_a_span_can_be_reverted(visitor: Visitor, api: Api) -> None:
    change = api.put("/client-quotas/user=filtered", "quotas", {"request_percentage": 1}, reason="a-reason-to-find")
    assert "a-reason-to-find" in visitor.page(f"{HOME}/audit?entity=user=filtered")
    assert "a-reason-to-find" not in visitor.page(f"{HOME}/audit?entity=user=somebody-else")
    span = visitor.page(f"{HOME}/audit?principal=User:admin&since=2h")
    assert "audit:revert?principal=User%3Aadmin&amp;since=" in span
    request = api.get(f"/audit/{change}")["requestId"]
    assert f"audit:revert?requestId={request}" in visitor.page(f"{HOME}/audit?requestId={request}")
    wrong = visitor.get(f"{HOME}/audit?since=yesterday")
    assert wrong.status_code == 400
    assert 'role="alert"' in wrong.text


def test_a_form_of_another_session_changes_nothing(visitor: Visitor, api: Api) -> None:
    path = f"{HOME}/entities/user=forged/edit/client-quotas"
    fields = {"value request_percentage": "1", "keys": '["request_percentage"]', "step": "save"}
    for target in (path, f"{HOME}/audit:revert"):
        assert visitor.post(target, {**fields, "csrf": "wrong"}).status_code == 403
    assert api.get("/client-quotas/user=forged", absent="empty")["quotas"] == {}
