"""The bodies of webhooks: CloudEvents for programs, and messages of chats for people. Pure functions.

An event is given as the feed's JSON has it. Texts of callers (names, values, reasons) are never markup: they are in
elements without one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from uuid_utils.compat import uuid7

from confplane.domain.change_requests import RequestEventType
from confplane.domain.texts import rfc3339
from confplane.services.ports.webhooks import WebhookFormat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime
    from uuid import UUID

_TYPES: Final = {kind: f"io.confplane.{kind}" for kind in ("change", "request", "reset", "put-back", "test")}
_MOST_KEYS: Final = 10
_LONGEST_VALUE: Final = 80
_LONGEST_REASON: Final = 500
_NOT_SET: Final = "not set"
_HIDDEN: Final = "hidden"


_REQUEST_WORDS: Final = {
    RequestEventType.PROPOSED: "{who} asks for approval of a change of {what}",
    RequestEventType.REVISED: "{who} revised the {request}",
    RequestEventType.APPROVED: "{who} approved the {request}",
    RequestEventType.REJECTED: "{who} rejected the {request}",
    RequestEventType.CANCELLED: "{who} cancelled the {request}",
    RequestEventType.EXPIRED: "Nobody applied the {request} in time",
    RequestEventType.REOPENED: "The {request} needs new approvals",
    RequestEventType.APPLIED: "{who} applied the {request}",
    RequestEventType.PARTLY_APPLIED: "{who} applied a part of the {request}",
    RequestEventType.FAILED: "The {request} could not be applied",
    RequestEventType.REVERTED: "The change of the {request} was reverted",
    RequestEventType.BREAK_GLASS: "Break glass: {who} changes {what} past the rules, and needs an acknowledgement",
    RequestEventType.ACKNOWLEDGED: "{who} acknowledged the change past the rules of {author} to {what}",
}
"""The titles of messages about change requests."""


class RenderedEvent(NamedTuple):
    """The body of a request, with its media type."""

    content: bytes
    media_type: str


class ChatKeyChange(NamedTuple):
    """One key of a chat message."""

    entity: str
    key: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """The values in one line."""
        return f"{self.before} → {self.after}"


class ChatMessage(NamedTuple):
    """A message of a chat in its parts: plain texts, without markup."""

    title: str
    changes: tuple[ChatKeyChange, ...]
    notes: tuple[str, ...]
    link: str | None
    link_text: str = "Show the change"


def body_of(
    kind: WebhookFormat, cluster: str, event: Mapping[str, Any], public_url: str | None
) -> RenderedEvent | None:
    """Return the body of an event; None for a message of a chat if no key that it may name has another value.

    Args:
        kind: The format.
        cluster: The cluster.
        event: The event, as the feed's JSON has it, or one of the type ``test``.
        public_url: The origin at which people reach the service; None if it is not known.
    """
    if kind is WebhookFormat.CLOUDEVENTS:
        return RenderedEvent(_encoded(_cloud_event(cluster, event, public_url)), "application/cloudevents+json")
    if event["type"] == "change" and event["entities"] and not any(_changes(event)):
        return None
    message = chat_message(cluster, event, public_url)
    rendered = _slack(message) if kind is WebhookFormat.SLACK else _teams(message)
    return RenderedEvent(_encoded(rendered), "application/json")


def event_of(kind: str, at: datetime, change_id: UUID | None = None) -> dict[str, Any]:
    """Return an event without entities, of the type ``test`` or ``reset``; it may stand for a change."""
    return {
        "type": kind,
        "revision": "0",
        "time": rfc3339(at),
        "changeId": str(change_id or uuid7()),
        "principal": "confplane",
        "onBehalfOf": None,
        "reason": None,
        "ticket": None,
        "source": "confplane",
        "partial": False,
        "entities": [],
    }


def _encoded(body: Mapping[str, Any]) -> bytes:
    # Not by orjson, which refuses integers above 64 bits: quotas may have any size.
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def chat_message(cluster: str, event: Mapping[str, Any], public_url: str | None) -> ChatMessage:
    """Return the message of an event: who changed what from which value to which, and why."""
    if event["type"] == "test":
        return ChatMessage(f"A test by Confplane: changes of cluster {cluster} will come here.", (), (), None)
    if event["type"] == "reset":
        title = f"Configs of cluster {cluster} were imported, or changes may be missing here. Read them again."
        return ChatMessage(title, (), (), None)
    if event["type"] == "request":
        return _request_message(cluster, event, public_url)
    what = _what([each["id"] for each in event["entities"]])
    if event["type"] == "put-back":
        title = f"An external change of {what} in the Kafka cluster of {cluster} was undone"
    elif event["source"] == "external":
        title = f"{what} of cluster {cluster} was changed outside Confplane"
    else:
        title = f"{_who(event)} changed {what} of cluster {cluster}"
    changes = list(_changes(event))
    notes = []
    if len(changes) > _MOST_KEYS:
        notes.append(f"And {len(changes) - _MOST_KEYS} more keys.")
    if event["partial"] or event.get("truncated"):
        notes.append("The change has further entities.")
    if "revertAt" in event:
        notes.append(f"Until {event['revertAt']}; then the keys get their earlier values again.")
    notes += _notes(("Reason", event["reason"]), ("Ticket", event["ticket"]))
    link = None
    if public_url is not None and event["source"] == "confplane":
        link = f"{public_url}/console/clusters/{quote(cluster)}/audit/{event['changeId']}"
    return ChatMessage(title, tuple(changes[:_MOST_KEYS]), tuple(notes), link)


def _request_message(cluster: str, event: Mapping[str, Any], public_url: str | None) -> ChatMessage:
    """Return the message of an event of a change request, with a link to the page where it is reviewed."""
    request = event["request"]
    author, what = _cut(request["author"], _LONGEST_VALUE), f"{_what(request['entities'])} of cluster {cluster}"
    # Texts of callers are arguments alone: a brace in them has no meaning.
    title = _REQUEST_WORDS[RequestEventType(request["event"])].format(
        who=_who(event), author=author, what=what, request=f"change request of {author} for {what}"
    )
    comment = None if request["comment"] == event["reason"] else request["comment"]
    notes = _notes(("Comment", comment), ("Reason", event["reason"]), ("Ticket", event["ticket"]))
    path = f"/console/clusters/{quote(cluster)}/requests/{request['id']}"
    link = None if public_url is None else f"{public_url}{path}"
    return ChatMessage(title, (), tuple(notes), link, "Show the request")


def _who(event: Mapping[str, Any]) -> str:
    names = [event["principal"], *([] if event["onBehalfOf"] is None else [event["onBehalfOf"]])]
    return " for ".join(_cut(each, _LONGEST_VALUE) for each in names)


def _what(entity_ids: Iterable[str]) -> str:
    entities = list(dict.fromkeys(entity_ids))
    return entities[0] if len(entities) == 1 else f"{len(entities)} entities"


def _notes(*labelled: tuple[str, str | None]) -> list[str]:
    return [f"{label}: {_cut(text, _LONGEST_REASON)}" for label, text in labelled if text is not None]


def _changes(event: Mapping[str, Any]) -> Iterator[ChatKeyChange]:
    for entity in event["entities"]:
        for key in entity["keys"]:
            if key["before"] == key["after"] and not key["sensitive"]:
                continue  # of several external writes as one
            before, after = (_value(key, side) for side in ("before", "after"))
            yield ChatKeyChange(_cut(entity["id"], 2 * _LONGEST_VALUE), _cut(key["key"], _LONGEST_VALUE), before, after)


def _value(key: Mapping[str, Any], side: str) -> str:
    if key["sensitive"]:
        return _HIDDEN
    value = key[side]
    if value is None:
        return _NOT_SET
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return _cut(str(value), _LONGEST_VALUE)


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _cloud_event(cluster: str, event: Mapping[str, Any], public_url: str | None) -> dict[str, Any]:
    request = event.get("request")
    entities = {each["id"] for each in event["entities"]} if request is None else set(request["entities"])
    subject = {"subject": entities.pop()} if len(entities) == 1 else {}
    return {
        "specversion": "1.0",
        "id": event["changeId"],
        "source": f"{public_url or ''}/v1/clusters/{quote(cluster)}",
        "type": _TYPES[event["type"]],
        **subject,
        "time": event["time"],
        "datacontenttype": "application/json",
        "data": dict(event),
    }


def _slack(message: ChatMessage) -> dict[str, Any]:
    def plain(text: str, **style: bool) -> dict[str, Any]:
        # Elements of rich text have no markup.
        return {"type": "text", "text": text, **({"style": style} if style else {})}

    def section(*elements: dict[str, Any]) -> dict[str, Any]:
        return {"type": "rich_text_section", "elements": list(elements)}

    parts = [section(plain(message.title, bold=True))]
    if message.changes:
        items = [section(plain(f"{each.entity} {each.key}: "), plain(each.text, code=True)) for each in message.changes]
        parts.append({"type": "rich_text_list", "style": "bullet", "elements": items})
    parts += [section(plain(note)) for note in message.notes]
    if message.link is not None:
        parts.append(section({"type": "link", "url": message.link, "text": message.link_text}))
    # Shown in notifications, and by software that takes Slack's form without blocks.
    lines = [message.title, *(f"{each.entity} {each.key}: {each.text}" for each in message.changes), *message.notes]
    text = "\n".join(lines).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": text, "blocks": [{"type": "rich_text", "elements": parts}]}


def _teams(message: ChatMessage) -> dict[str, Any]:
    def plain(text: str, **more: Any) -> dict[str, Any]:
        # Runs of text have no Markdown.
        return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **more}]}

    def line(change: ChatKeyChange) -> dict[str, Any]:
        name = {"type": "TextRun", "text": f"{change.entity} {change.key}: "}
        values = {"type": "TextRun", "text": change.text, "fontType": "Monospace"}
        return {"type": "RichTextBlock", "inlines": [name, values]}

    body = [plain(message.title, weight="Bolder"), *map(line, message.changes)]
    body += map(plain, message.notes)
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }
    if message.link is not None:
        card["actions"] = [{"type": "Action.OpenUrl", "title": message.link_text, "url": message.link}]
    content_type = "application/vnd.microsoft.card.adaptive"
    return {
        "type": "message",
        "attachments": [{"contentType": content_type, "contentUrl": None, "content": card}],
    }
