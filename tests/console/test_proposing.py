"""Edits that are proposed instead of saved: by choice, because a rule asks for it, or because of the caller's grants."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from confplane.domain.texts import rfc3339
from tests.console.test_change_request_pages import SECRET, people, service_options, tokens
from tests.console.test_change_request_pages import step as review
from tests.console.test_editing import HOME, fields_of, step
from tests.console.visitor import text_of

if TYPE_CHECKING:
    import httpx

    from tests.console.api import Api
    from tests.console.visitor import Visitor
    from tests.support.servers import Database

__all__ = ["people", "service_options", "tokens"]

LATER = "2099-01-31T12:00:00Z"


def edit_path(entity: str, facet: str = "client-quotas") -> str:
    """Return the address of a form."""
    return f"{HOME}/entities/{entity}/edit/{facet}"


def reviewed(visitor: Visitor, path: str, key: str, value: str, **typed: str) -> str:
    """Return the review of an edit of one key, or the form with the API's refusal."""
    form = step(visitor, path, visitor.page(path), {"add": key, "step": "add"}).text
    fields = {f"value {key}": value, "step": "review", "reason": "more load", "ticket": "CHG-1", **typed}
    return visitor.post(path, {**fields_of(form), **fields}).text


def offered(page: str) -> list[str]:
    """Return the ways to write that a review offers; the first is the one in colour."""
    found = re.findall(r'<button([^>]*) name="step" value="(save|propose)"', page)
    assert sum("primary" in attributes for attributes, _ in found) == 1
    return [name for _, name in sorted(found, key=lambda each: "primary" not in each[0])]


def request_of(visitor: Visitor, api: Api, answer: httpx.Response) -> Any:
    """Return the request to which a response leads, and whose page is shown."""
    path = answer.headers["location"]
    assert path.startswith(f"{HOME}/requests/")
    visitor.page(path)
    return api.get(f"change-requests/{path.rpartition('/')[2]}")


def test_a_change_that_needs_approval_is_proposed(people: dict[str, Visitor], api: Api) -> None:
    api.put("client-quotas/user=ruled-edited", {"quotas": {"producer_byte_rate": 1048576, "consumer_byte_rate": 5}})
    path, ops = edit_path("user=ruled-edited"), people["ops"]
    page = reviewed(ops, path, "request_percentage", "50", **{"remove consumer_byte_rate": "on"})
    assert offered(page) == ["propose"]
    assert "needs approval: rule 'two-people'" in text_of(page)
    assert "/v1/clusters/default/change-requests" in page
    made = request_of(ops, api, step(ops, path, page, {"step": "propose"}, 303))
    assert (made["author"]["principal"], made["reason"], made["ticket"]) == ("User:ops", "more load", "CHG-1")
    [change] = made["changes"]
    assert change["diff"] == [
        {"key": "consumer_byte_rate", "before": 5, "after": None},
        {"key": "request_percentage", "before": None, "after": 50},
    ]
    assert "consumer_byte_rate" in api.get("client-quotas/user=ruled-edited")["quotas"], "nothing is written yet"


def test_a_refused_save_offers_to_propose_the_same(people: dict[str, Visitor], api: Api) -> None:
    path, ops = edit_path("user=ruled-refused"), people["ops"]
    page = reviewed(ops, path, "request_percentage", "50")
    refused = step(ops, path, page, {"step": "save"}, 422).text
    alert = text_of(refused.partition('role="alert"')[2].partition("</p>")[0])
    assert "Propose the change instead" in alert
    assert offered(refused) == ["propose"]
    made = request_of(ops, api, step(ops, path, refused, {"step": "propose"}, 303))
    assert made["entities"] == ["user=ruled-refused"]


def test_a_change_without_a_rule_is_saved_or_proposed(people: dict[str, Visitor], api: Api) -> None:
    for who, expected in (("ops", ["save", "propose"]), ("dev", ["propose"])):
        visitor, path = people[who], edit_path(f"user=free-{who}")
        page = reviewed(visitor, path, "producer_byte_rate", "1")
        assert offered(page) == expected
        assert "confplane set" in page
        assert ("--propose" in page) == (expected == ["propose"])
        made = request_of(visitor, api, step(visitor, path, page, {"step": "propose"}, 303))
        assert made["author"]["principal"] == f"User:{who}"
    path = edit_path("user=free-brief")
    brief = reviewed(people["ops"], path, "producer_byte_rate", "1", duration="6h")
    assert offered(brief) == ["save"], "a request has no end"


def test_a_form_sent_twice_makes_one_request(people: dict[str, Visitor], api: Api, module_database: Database) -> None:
    path, dev = edit_path("user=ruled-twice"), people["dev"]
    page = reviewed(dev, path, "request_percentage", "50")
    first = step(dev, path, page, {"step": "propose"}, 303).headers["location"]
    assert step(dev, path, page, {"step": "propose"}, 303).headers["location"] == first
    # As if the process had died after it made the request, and before it stored the answer.
    forgotten = "UPDATE request_keys SET status = NULL, headers = NULL, answer = NULL, until = now()"
    with psycopg.connect(module_database.owner_dsn) as connection:
        connection.execute(forgotten)
    assert step(dev, path, page, {"step": "propose"}, 303).headers["location"] == first
    assert len(api.get("change-requests", entity="user=ruled-twice")["items"]) == 1


def test_forms_sent_at_once_make_one_request(people: dict[str, Visitor], api: Api) -> None:
    path, dev = edit_path("user=ruled-at-once"), people["dev"]
    page = reviewed(dev, path, "request_percentage", "50")
    with ThreadPoolExecutor(4) as pool:
        sent = list(pool.map(lambda _: step(dev, path, page, {"step": "propose"}, 303), range(4)))
    assert len({each.headers["location"] for each in sent}) == 1
    assert len(api.get("change-requests", entity="user=ruled-at-once")["items"]) == 1


def test_what_was_changed_since_the_review_is_reviewed_again(people: dict[str, Visitor], api: Api) -> None:
    api.put("client-quotas/user=ruled-late", {"quotas": {"producer_byte_rate": 1}})
    path, dev = edit_path("user=ruled-late"), people["dev"]
    page = reviewed(dev, path, "request_percentage", "50")
    api.put("client-quotas/user=ruled-late", {"quotas": {"producer_byte_rate": 2}})
    again = step(dev, path, page, {"step": "propose"}).text
    assert "Somebody changed this entity" in again
    assert api.get("change-requests", entity="user=ruled-late")["items"] == []
    made = request_of(dev, api, step(dev, path, again, {"step": "propose"}, 303))
    assert [each["key"] for each in made["changes"][0]["diff"]] == ["request_percentage"]


def test_times_of_a_proposal(people: dict[str, Visitor], api: Api) -> None:
    path, dev = edit_path("user=ruled-timed"), people["dev"]
    page = reviewed(dev, path, "request_percentage", "50")
    wrong = step(dev, path, page, {"step": "propose", "applyAt": "tomorrow"}, 400).text
    assert 'role="alert"' in wrong
    assert 'value="tomorrow"' in wrong
    refused = step(dev, path, wrong, {"step": "propose", "applyAt": "", "expiresAt": LATER}, 400).text
    assert f'value="{LATER}"' in refused
    tomorrow = rfc3339(datetime.now(UTC).replace(microsecond=0) + timedelta(days=1))
    typed = {"step": "propose", "applyAt": tomorrow, "expiresAt": ""}
    answer = step(dev, path, refused, typed, 303)
    made = request_of(dev, api, answer)
    assert (made["applyAt"], made["state"]) == (tomorrow, "open")
    assert "Is applied at" in text_of(dev.page(answer.headers["location"]))


def test_a_proposed_secret_is_in_no_page(people: dict[str, Visitor], api: Api) -> None:
    key = "listener.name.proposed.ssl.key.password"
    path, sre = edit_path("broker=8", "configs"), people["sre"]
    page = reviewed(sre, path, key, SECRET)
    answer = step(sre, path, page, {"step": "propose", f"value {key}": SECRET}, 303)
    made = request_of(sre, api, answer)
    assert made["toSupply"] == [{"id": "broker=8", "key": key}]
    assert not any(SECRET.strip() in each for each in (page, sre.page(answer.headers["location"])))
    assert review(people["ops"], made["id"], "approve").status_code == 303
    assert review(sre, made["id"], "apply", **{f"value broker=8 {key}": SECRET}).status_code == 303
