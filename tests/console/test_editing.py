"""Editing entities and reverting changes: forms, reviews, conflicts, secrets, and the audit trail."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.support.waiting import wait_for

if TYPE_CHECKING:
    import httpx
    from kazoo.client import KazooClient

    from tests.console.api import Api
    from tests.console.visitor import Visitor

HOME = "/console/clusters/default"
MARKUP = "<img src=x onerror=alert(1)>\"'"


def fields_of(page: str) -> dict[str, str]:
    """Return the fields of the form that a browser would send, besides unchecked boxes."""
    form = page[page.rindex('<form method="post" action="' + HOME) :]
    fields = {}
    for tag in re.findall(r"<input[^>]*>", form):
        name, value = re.search(r'name="([^"]*)"', tag), re.search(r'value="([^"]*)"', tag)
        if name and ('type="checkbox"' not in tag or " checked" in tag):
            fields[html.unescape(name[1])] = html.unescape(value[1]) if value else ""
    for name, options in re.findall(r'<select[^>]*name="([^"]*)"[^>]*>(.*?)</select>', form):
        found = re.findall(r'<option(?: value="([^"]*)")?( selected)?>([^<]*)', options)
        chosen = next((each for each in found if each[1]), found[0])
        fields[html.unescape(name)] = "" if '<option value=""' + chosen[1] + ">" + chosen[2] in options else chosen[2]
    for name, text in re.findall(r'<textarea[^>]*name="([^"]*)"[^>]*>(?:\n)?(.*?)</textarea>', form, re.DOTALL):
        fields[html.unescape(name)] = html.unescape(text)
    return fields


def write_as_broker(zk: KazooClient, path: str, configs: dict[str, str]) -> None:
    """Write the values of an entity as another tool does, which checks nothing."""
    zk.create(f"/config/{path}", json.dumps({"version": 1, "config": configs}).encode(), makepath=True)
    zk.ensure_path("/config/changes")
    notice = json.dumps({"version": 2, "entity_path": path}).encode()
    zk.create("/config/changes/config_change_", notice, sequence=True)


def step(visitor: Visitor, path: str, page: str, typed: dict[str, str], status: int = 200) -> httpx.Response:
    """Send the form of a page, with some fields typed."""
    response = visitor.post(path, {**fields_of(page), **typed})
    assert response.status_code == status, response.text[-3000:]
    return response


def test_a_change_for_some_hours_is_shown_until_it_ends(visitor: Visitor, api: Api) -> None:
    path = f"{HOME}/entities/user=briefly/edit/client-quotas"
    form = step(visitor, path, visitor.page(path), {"add": "request_percentage", "step": "add"}).text
    review = step(visitor, path, form, {"value request_percentage": "50", "duration": "6h", "step": "review"}).text
    assert "after 6h the keys get their earlier values again" in review
    assert "--for 6h" in review
    step(visitor, path, review, {"step": "save"}, 303)
    [item] = api.get("schedules", entity="user=briefly")["items"]
    assert item["state"] == "active"
    assert f"audit/{item['changeId']}" in visitor.page(f"{HOME}/entities/user=briefly")


def test_a_change_is_reviewed_saved_and_reverted(visitor: Visitor, api: Api) -> None:
    api.put("client-quotas/user=edited", {"quotas": {"producer_byte_rate": 10485760, "request_percentage": 200}})
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
    assert api.get("client-quotas/user=edited")["quotas"]["producer_byte_rate"] == 10485760
    saved = step(visitor, path, review, {"step": "save"}, 303)
    assert api.get("client-quotas/user=edited")["quotas"] == {"producer_byte_rate": 1572864}
    change = visitor.page(saved.headers["location"])
    assert "Saved" in change
    assert "too fast" in change
    preview_path = html.unescape(re.findall(r'href="([^"]*audit:revert[^"]*)"', change)[0])
    preview = visitor.page(preview_path)
    reverted = step(visitor, f"{HOME}/audit:revert", preview, {"reason": "undo"}, 303)
    assert "undo" in visitor.page(reverted.headers["location"])
    assert api.get("client-quotas/user=edited")["quotas"] == {
        "producer_byte_rate": 10485760,
        "request_percentage": 200,
    }


def test_a_review_is_repeated_where_somebody_else_was_faster(visitor: Visitor, api: Api) -> None:
    api.put("client-quotas/user=raced", {"quotas": {"producer_byte_rate": 1, "consumer_byte_rate": 1}})
    path = f"{HOME}/entities/user=raced/edit/client-quotas"
    review = step(visitor, path, visitor.page(path), {"value producer_byte_rate": "2"}).text
    api.put(
        "client-quotas/user=raced",
        {"quotas": {"producer_byte_rate": 1, "consumer_byte_rate": 7, "request_percentage": 5}},
    )
    again = step(visitor, path, review, {"step": "save"}).text
    assert "Somebody changed this entity" in again
    assert api.get("client-quotas/user=raced")["quotas"]["producer_byte_rate"] == 1
    step(visitor, path, again, {"step": "save"}, 303)
    assert api.get("client-quotas/user=raced")["quotas"] == {
        "producer_byte_rate": 2,
        "consumer_byte_rate": 7,
        "request_percentage": 5,
    }


def test_a_field_that_was_left_empty_keeps_what_somebody_else_has_set(visitor: Visitor, api: Api) -> None:
    api.put("configs/topic=left-empty", {"configs": {"retention.ms": "1"}})
    path = f"{HOME}/entities/topic=left-empty/edit/configs"
    key = "follower.replication.throttled.replicas"
    form = step(visitor, path, visitor.page(path), {"add": key}).text
    api.put("configs/topic=left-empty", {"configs": {"retention.ms": "1", key: "*"}})
    review = step(visitor, path, form, {"value retention.ms": "2", "unit retention.ms": "ms"}).text
    step(visitor, path, review, {"step": "save"}, 303)
    assert api.get("configs/topic=left-empty")["configs"] == {"retention.ms": "2", key: "*"}


def test_a_review_that_is_sent_twice_is_saved_once(visitor: Visitor, api: Api) -> None:
    path = f"{HOME}/entities/user=twice/edit/client-quotas"
    form = step(visitor, path, visitor.page(path), {"add": "request_percentage"}).text
    review = step(visitor, path, form, {"value request_percentage": "9"}).text
    first = step(visitor, path, review, {"step": "save"}, 303)
    again = step(visitor, path, review, {"step": "save"}, 303)
    assert first.headers["location"].startswith(f"{HOME}/audit/")
    assert again.headers["location"] == first.headers["location"]
    assert len(api.get("client-quotas/user=twice/history")["items"]) == 1


def test_the_last_key_can_be_removed(visitor: Visitor, api: Api) -> None:
    api.put("configs/topic=emptied", {"configs": {"retention.ms": "3600000"}})
    path = f"{HOME}/entities/topic=emptied/edit/configs"
    form = visitor.page(path)
    assert (fields_of(form)["value retention.ms"], fields_of(form)["unit retention.ms"]) == ("1", "h")
    review = step(visitor, path, form, {"remove retention.ms": "on"}).text
    step(visitor, path, review, {"step": "save"}, 303)
    assert api.get("configs/topic=emptied", absent="empty")["configs"] == {}


@pytest.mark.parametrize(
    ("typed", "unit"),
    [
        ("abc", "MiB/s"),
        ("-5", "B/s"),
        ("abc", "B/s"),
        ("0.0000001", "MiB/s"),
        ("1,5", "MiB/s"),
        ("1,5", "B/s"),
        ("1_5", "B/s"),
        ("1e999999", "MiB/s"),
        ("1e400", "B/s"),
        ("9" * 5000, "B/s"),
    ],
)
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
    api.put("configs/broker=8", {"configs": {"log.cleaner.threads": "1", "key.of.a.plugin": "s3cr3t-of-a-plugin"}})
    path = f"{HOME}/entities/broker=8/edit/configs"
    form = visitor.page(path)
    assert "s3cr3t" not in form
    review = step(visitor, path, form, {"value log.cleaner.threads": "2"}).text
    step(visitor, path, review, {"step": "save"}, 303)
    etag = api.get("configs/broker=8", view="full")["status"]["fingerprints"]
    assert api.get("configs/broker=8")["configs"] == {"key.of.a.plugin": None, "log.cleaner.threads": "2"}, etag


def test_a_revert_over_later_changes_asks_first(visitor: Visitor, api: Api) -> None:
    first = api.put("client-quotas/user=later", {"quotas": {"request_percentage": 1}})
    api.put("client-quotas/user=later", {"quotas": {"request_percentage": 2}})
    refused = visitor.get(f"{HOME}/audit:revert?changeId={first}")
    assert refused.status_code == 409
    assert "Changed later" in refused.text
    forced = visitor.page(f"{HOME}/audit:revert?changeId={first}&force=true")
    api.put("client-quotas/user=later", {"quotas": {"request_percentage": 3}})
    again = step(visitor, f"{HOME}/audit:revert", forced, {})
    assert "something else than the preview showed" in again.text
    assert api.get("client-quotas/user=later")["quotas"] == {"request_percentage": 3}


def test_audit_is_filtered_and_a_span_can_be_reverted(visitor: Visitor, api: Api) -> None:
    change = api.put("client-quotas/user=filtered", {"quotas": {"request_percentage": 1}}, reason="a-reason-to-find")
    assert "a-reason-to-find" in visitor.page(f"{HOME}/audit?entity=user=filtered")
    assert "a-reason-to-find" not in visitor.page(f"{HOME}/audit?entity=user=somebody-else")
    span = visitor.page(f"{HOME}/audit?principal=User:admin&since=2h")
    assert "audit:revert?principal=User%3Aadmin&amp;since=" in span
    request = api.get(f"audit/{change}")["requestId"]
    assert f"audit:revert?requestId={request}" in visitor.page(f"{HOME}/audit?requestId={request}")
    wrong = visitor.get(f"{HOME}/audit?since=yesterday")
    assert wrong.status_code == 400
    assert 'role="alert"' in wrong.text


def test_a_comma_separates_thousands(visitor: Visitor) -> None:
    path = f"{HOME}/entities/user=comma/edit/client-quotas"
    form = visitor.page(f"{path}?key=producer_byte_rate")
    fields = {"value producer_byte_rate": "1,536", "unit producer_byte_rate": "KiB/s"}
    assert "1.5 MiB/s" in step(visitor, path, form, fields).text
    wrong = step(visitor, path, form, {**fields, "value producer_byte_rate": "1,5"}, 400).text
    assert "Use a point for decimals" in wrong


def test_a_unit_is_shown_where_it_is_exact(visitor: Visitor, api: Api, zk: KazooClient) -> None:
    configs = {
        "retention.ms": ("86399999", "86,399,999 ms"),
        "retention.bytes": ("-1", "no limit"),
        "segment.ms": ("2147483647", "2,147,483,647 ms"),
        "max.compaction.lag.ms": ("9223372036854775807", "no limit"),
        "segment.bytes": ("1610612736", "1.5 GiB"),
        "max.message.bytes": ("-1", ""),
        "min.insync.replicas": ("9" * 5000, ""),
    }
    write_as_broker(zk, "topics/exact", {key: raw for key, (raw, _) in configs.items()})
    wait_for(lambda: api.get("configs/topic=exact", absent="empty")["configs"])
    form = visitor.page(f"{HOME}/entities/topic=exact/edit/configs")
    for key, (raw, words) in configs.items():
        setting = form[form.index(f'class="mono">{key}</label>') :]
        assert f'Now {words and words + ", raw "}<span class="mono">{raw[:200]}</span>' in setting, key


@pytest.mark.parametrize("largest", ["9223372036854775807", "9.223372036854775807E18"])
def test_the_largest_rate_is_no_limit(visitor: Visitor, api: Api, zk: KazooClient, largest: str) -> None:
    write_as_broker(zk, f"users/unlimited{len(largest)}", {"producer_byte_rate": largest})
    path = f"client-quotas/user=unlimited{len(largest)}"
    wait_for(lambda: api.get(path, absent="empty")["quotas"])
    assert ">no limit</span>" in visitor.page(f"{HOME}/entities/user=unlimited{len(largest)}")


def test_a_diff_shows_what_differs(visitor: Visitor, api: Api) -> None:
    api.put("client-quotas/user=differs", {"quotas": {"producer_byte_rate": 10485760}})
    change = api.put("client-quotas/user=differs", {"quotas": {"producer_byte_rate": 10486000}})
    shown = visitor.page(f"{HOME}/audit/{change}")
    assert ">10 MiB/s<" in shown
    assert ">10,486,000 B/s<" in shown


def test_nothing_left_to_change_is_not_a_command(visitor: Visitor, api: Api) -> None:
    api.put("client-quotas/user=done", {"quotas": {"request_percentage": 1}})
    path = f"{HOME}/entities/user=done/edit/client-quotas"
    review = step(visitor, path, visitor.page(path), {"value request_percentage": "2"}).text
    api.put("client-quotas/user=done", {"quotas": {"request_percentage": 2}})
    again = step(visitor, path, review, {"step": "save"}).text
    assert "nothing is left to save" in again
    assert "The same as a command" not in again


def test_a_secret_is_stored_as_it_was_typed(visitor: Visitor, zk: KazooClient) -> None:
    path, key = f"{HOME}/entities/broker=9/edit/configs", "key.of.a.plugin"
    form = step(visitor, path, visitor.page(path), {"add": key}).text
    typed = {f"value {key}": " a\r\nb "}
    assert re.search(rf'<textarea[^>]*name="value {key}"', form)
    review = step(visitor, path, form, typed).text
    assert re.search(rf'<textarea[^>]*name="value {key}"', review)
    step(visitor, path, review, {**typed, "step": "save"}, 303)
    assert json.loads(zk.get("/config/brokers/9")[0])["config"] == {key: " a\nb "}


def test_a_key_that_cannot_be_set_here_is_not_a_secret(visitor: Visitor, api: Api, zk: KazooClient) -> None:
    write_as_broker(zk, "brokers/10", {"log.dirs": "/kafka-a", "log.cleaner.threads": "1"})
    wait_for(lambda: api.get("configs/broker=10", absent="empty")["configs"])
    path = f"{HOME}/entities/broker=10/edit/configs"
    form = visitor.page(path)
    assert "/kafka-a" in form
    review = step(visitor, path, form, {"value log.cleaner.threads": "2"}).text
    assert "<td>log.cleaner.threads</td>" in review
    assert "<td>log.dirs</td>" not in review


def test_what_the_form_does_not_have_stays(visitor: Visitor, api: Api, zk: KazooClient) -> None:
    write_as_broker(
        zk, "topics/partial", {"compression.type": "", "cleanup.policy": "compact", "retention.ms": "3600000"}
    )
    wait_for(lambda: api.get("configs/topic=partial", absent="empty")["configs"])
    path = f"{HOME}/entities/topic=partial/edit/configs"
    form = visitor.page(path)
    fields = fields_of(form)
    assert fields["value compression.type"] == ""
    fields.pop("value cleanup.policy")
    review = visitor.post(path, {**fields, "value retention.ms": "2"}).text
    assert "<td>retention.ms</td>" in review
    assert "<td>cleanup.policy</td>" not in review
    assert "<td>compression.type</td>" not in review


def test_the_review_names_the_level_that_counts_afterwards(visitor: Visitor, api: Api) -> None:
    api.put("configs/broker", {"configs": {"log.cleaner.threads": "2"}})
    api.put("configs/broker=11", {"configs": {"log.cleaner.threads": "1"}})
    path = f"{HOME}/entities/broker=11/edit/configs"
    review = step(visitor, path, visitor.page(path), {"remove log.cleaner.threads": "on"}).text
    assert "now 2 from the default of all brokers" in review


def test_keys_that_differ_in_case_are_both_in_the_diff(visitor: Visitor, api: Api, zk: KazooClient) -> None:
    write_as_broker(zk, "brokers/12", {"key.of.a.plugin": "1", "Key.of.a.plugin": "2"})
    wait_for(lambda: api.get("configs/broker=12", absent="empty")["configs"])
    path = f"{HOME}/entities/broker=12/edit/configs"
    removed = {"remove key.of.a.plugin": "on", "remove Key.of.a.plugin": "on"}
    review = step(visitor, path, visitor.page(path), removed).text
    assert "<td>key.of.a.plugin</td>" in review
    assert "<td>Key.of.a.plugin</td>" in review
