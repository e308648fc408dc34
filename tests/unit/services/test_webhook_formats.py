"""Bodies of webhooks: what programs and people get of an event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from confplane.domain.change_requests import RequestEventType
from confplane.services.ports.webhooks import WebhookFormat
from confplane.services.webhooks.formats import body_of, chat_message

URL = "https://confplane.example.com"
EVENT: dict[str, Any] = {
    "type": "change",
    "id": "p",
    "revision": "7",
    "time": "2026-01-31T12:00:00.000Z",
    "changeId": "019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10",
    "principal": "User:olga",
    "onBehalfOf": None,
    "reason": "launch",
    "ticket": "T-1",
    "source": "confplane",
    "partial": False,
    "entities": [
        {
            "facet": "configs",
            "id": "topic=orders",
            "entity": {"topic": "orders"},
            "revision": "7",
            "keys": [
                {"key": "retention.ms", "before": "1", "after": None, "sensitive": False},
                {"key": "own.password", "before": None, "after": None, "sensitive": True},
            ],
        }
    ],
}


def body(kind: WebhookFormat, event: dict[str, Any] = EVENT, url: str | None = URL) -> Any:
    return json.loads(content(kind, event, url))


def content(kind: WebhookFormat, event: dict[str, Any], url: str | None = URL) -> bytes:
    found = body_of(kind, "payments", event, url)
    assert found is not None
    return found.content


def test_a_cloud_event_has_the_event_of_the_feed() -> None:
    assert body(WebhookFormat.CLOUDEVENTS) == {
        "specversion": "1.0",
        "id": EVENT["changeId"],
        "source": f"{URL}/v1/clusters/payments",
        "type": "io.confplane.change",
        "subject": "topic=orders",
        "time": EVENT["time"],
        "datacontenttype": "application/json",
        "data": EVENT,
    }
    several = {**EVENT, "entities": [*EVENT["entities"], {**EVENT["entities"][0], "id": "topic=other"}]}
    assert "subject" not in body(WebhookFormat.CLOUDEVENTS, several)
    assert body(WebhookFormat.CLOUDEVENTS, url=None)["source"] == "/v1/clusters/payments"


def test_people_are_told_when_a_temporary_change_ends() -> None:
    message = chat_message("payments", {**EVENT, "revertAt": "2026-01-31T18:00:00.000Z"}, URL)
    assert message.notes[0] == "Until 2026-01-31T18:00:00.000Z; then the keys get their earlier values again."
    assert not any("Until" in note for note in chat_message("payments", EVENT, URL).notes)


def test_numbers_of_any_size_are_sent() -> None:
    event = {
        **EVENT,
        "entities": [{**EVENT["entities"][0], "keys": [{**EVENT["entities"][0]["keys"][0], "after": 10**300}]}],
    }
    assert body(WebhookFormat.CLOUDEVENTS, event)["data"] == event
    for kind in (WebhookFormat.SLACK, WebhookFormat.TEAMS):
        assert "1000000000" in json.dumps(body(kind, event))


def test_a_message_says_who_changed_what_from_which_value_to_which_and_why() -> None:
    message = chat_message("payments", EVENT, URL)
    assert message.title == "User:olga changed topic=orders of cluster payments"
    assert [(each.entity, each.key, each.text) for each in message.changes] == [
        ("topic=orders", "retention.ms", "1 → not set"),
        ("topic=orders", "own.password", "hidden → hidden"),
    ]
    assert message.notes == ("Reason: launch", "Ticket: T-1")
    assert message.link == f"{URL}/console/clusters/payments/audit/{EVENT['changeId']}"


@pytest.mark.parametrize(
    ("more", "title", "note"),
    [
        (
            {"type": "put-back", "source": "external"},
            "An external change of topic=orders in the Kafka cluster of payments was undone",
            None,
        ),
        ({"source": "external"}, "topic=orders of cluster payments was changed outside Confplane", None),
        ({"onBehalfOf": "User:max"}, "User:olga for User:max changed topic=orders of cluster payments", None),
        ({"partial": True}, None, "The change has further entities."),
        ({"truncated": True}, None, "The change has further entities."),
        ({"type": "reset", "entities": []}, "Configs of cluster payments were imported", None),
        ({"type": "test", "entities": []}, "A test by Confplane", None),
    ],
)
def test_messages_of_other_events(more: dict[str, Any], title: str | None, note: str | None) -> None:
    message = chat_message("payments", {**EVENT, **more}, URL)
    assert title is None or message.title.startswith(title)
    assert note is None or note in message.notes


def test_a_message_is_bounded() -> None:
    keys = [{"key": "k" * 300, "before": "b" * 10_000, "after": n, "sensitive": False} for n in range(500)]
    huge = {**EVENT, "reason": "r" * 10_000, "entities": [{**EVENT["entities"][0], "keys": keys}]}
    message = chat_message("payments", huge, URL)
    assert "And 490 more keys." in message.notes
    for kind in (WebhookFormat.SLACK, WebhookFormat.TEAMS):
        assert len(content(kind, huge)) < 20_000


def test_external_writes_that_left_the_keys_as_they_were_have_no_message() -> None:
    same = [{"key": "retention.ms", "before": "1", "after": "1", "sensitive": False}]
    event = {**EVENT, "entities": [{**EVENT["entities"][0], "complete": True, "keys": same}]}
    for kind in (WebhookFormat.SLACK, WebhookFormat.TEAMS):
        assert body_of(kind, "payments", event, URL) is None
        assert body_of(kind, "payments", {**event, "entities": [], "truncated": True}, URL) is not None
    assert body(WebhookFormat.CLOUDEVENTS, event)["data"] == event


def test_texts_of_callers_are_never_markup() -> None:
    """Slack's text is escaped; all else is in elements that have no markup."""
    trick = "<!channel> <https://evil.example.com|click> *bold* `code` [click](https://evil.example.com)"
    event = {**EVENT, "reason": trick}
    slack = body(WebhookFormat.SLACK, event)
    assert "<" not in slack["text"]
    assert {each["type"] for each in elements(slack["blocks"])} <= {
        *("rich_text", "rich_text_section", "rich_text_list", "text", "link"),
    }
    teams = body(WebhookFormat.TEAMS, event)
    [attachment] = teams["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert {each["type"] for each in attachment["content"]["body"]} == {"RichTextBlock"}
    links = [each["url"] for each in (*elements(slack["blocks"]), *attachment["content"]["actions"]) if "url" in each]
    assert links == [chat_message("payments", event, URL).link] * 2


def elements(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for part in parts for each in (part, *elements(part.get("elements", [])))]


REQUEST_EVENT: dict[str, Any] = {
    **EVENT,
    "type": "request",
    "principal": "User:dev",
    "reason": "<b>more</b> load",
    "entities": [],
    "request": {
        "id": "019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b11",
        "event": "proposed",
        "state": "open",
        "kind": "change",
        "author": "User:dev",
        "revision": 1,
        "comment": "<b>more</b> load",
        "entities": ["topic=orders"],
    },
}


def of_request(**more: Any) -> dict[str, Any]:
    return {**REQUEST_EVENT, "request": {**REQUEST_EVENT["request"], **more}}


@pytest.mark.parametrize(
    ("event", "title"),
    [
        ("proposed", "User:dev asks for approval of a change of topic=orders of cluster payments"),
        ("revised", "User:dev revised the change request of User:ann for topic=orders of cluster payments"),
        ("approved", "User:dev approved the change request of User:ann for topic=orders of cluster payments"),
        ("rejected", "User:dev rejected the change request of User:ann for topic=orders of cluster payments"),
        ("cancelled", "User:dev cancelled the change request of User:ann for topic=orders of cluster payments"),
        ("expired", "Nobody applied the change request of User:ann for topic=orders of cluster payments in time"),
        ("reopened", "The change request of User:ann for topic=orders of cluster payments needs new approvals"),
        ("applied", "User:dev applied the change request of User:ann for topic=orders of cluster payments"),
        ("failed", "The change request of User:ann for topic=orders of cluster payments could not be applied"),
        (
            "break-glass",
            "Break glass: User:dev changes topic=orders of cluster payments past the rules, and needs an acknowledgement",
        ),
        (
            "acknowledged",
            "User:dev acknowledged the change past the rules of User:ann to topic=orders of cluster payments",
        ),
    ],
)
def test_a_message_says_what_happened_to_a_request(event: str, title: str) -> None:
    assert chat_message("payments", of_request(event=event, author="User:ann"), URL).title == title


def test_each_event_of_a_request_has_a_message() -> None:
    for each in RequestEventType:
        assert "payments" in chat_message("payments", of_request(event=each), URL).title


def test_reviewers_get_a_link_to_the_request_and_texts_without_markup() -> None:
    message = chat_message("payments", REQUEST_EVENT, URL)
    assert message.link == f"{URL}/console/clusters/payments/requests/{REQUEST_EVENT['request']['id']}"
    assert message.notes == ("Reason: <b>more</b> load", "Ticket: T-1")
    commented = chat_message("payments", of_request(event="rejected", comment="not now"), URL)
    assert commented.notes[0] == "Comment: not now"
    slack, teams = body(WebhookFormat.SLACK, REQUEST_EVENT), body(WebhookFormat.TEAMS, REQUEST_EVENT)
    assert "&lt;b&gt;more&lt;/b&gt; load" in slack["text"]
    for each in (slack, teams):
        assert "Show the request" in json.dumps(each)
    assert chat_message("payments", REQUEST_EVENT, None).link is None


def test_a_cloud_event_of_a_request_names_its_entity() -> None:
    event = body(WebhookFormat.CLOUDEVENTS, REQUEST_EVENT)
    assert (event["type"], event["subject"], event["data"]) == (
        "io.confplane.request",
        "topic=orders",
        REQUEST_EVENT,
    )
    several = body(WebhookFormat.CLOUDEVENTS, of_request(entities=["topic=orders", "topic=other"]))
    assert "subject" not in several
