"""Commands that print tables, at three widths of a terminal, without colours, in a pipe and as JSON.

The expected output is in ``golden``, a file for each command. ``CONFPLANE_WRITE_GOLDEN=1`` writes the files; look at
each difference before you commit it.
"""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.cli.commands import cli

if TYPE_CHECKING:
    from tests.unit.cli.answers import Recorded

GOLDEN: Final = Path(__file__).with_name("golden")
TIME: Final = "2026-01-31T12:00:00.123Z"
ID: Final = "019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10"
OTHER: Final = "019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b11"
BY: Final = "User:deployer-of-payments"
LONG: Final = "10.0.0.1:9092,10.0.0.2:9092,10.0.0.3:9092 and 10.0.0.4:9092"
HOSTILE: Final = "a\x1b[31mb\x9b1mc\u202ed\ne"
NOTHING: Final[dict[str, Any]] = {"items": [], "nextPageToken": None, "skipped": []}


def _page(*items: dict[str, Any]) -> dict[str, Any]:
    return {**NOTHING, "items": list(items)}


def _key(key: str, before: Any, after: Any, **further: Any) -> dict[str, Any]:
    return {"key": key, "before": before, "after": after, **further}


def _change(change_id: str, *changes: dict[str, Any]) -> dict[str, Any]:
    return {
        "changeId": change_id, "revision": "8589934602", "time": TIME, "principal": BY, "kind": "change",
        "reason": "more load on Fridays", "ticket": "OPS-12", "changes": list(changes),
    }  # fmt: skip


def _audited(*entities: tuple[str, list[str]]) -> dict[str, Any]:
    return {
        "changeId": ID, "revision": "8589934602", "createdAt": TIME, "committedAt": TIME, "principal": BY,
        "kind": "external", "reason": None, "ticket": "OPS-12", "outcome": "committed", "onBehalfOf": None,
        "source": "10.0.0.7", "requestId": OTHER, "errorMessage": None,
        "entities": [
            {"id": name, "keys": keys, "ops": [], "before": {}, "after": dict.fromkeys(keys, LONG)}
            for name, keys in entities
        ],
    }  # fmt: skip


_RATES: Final = _key("producer_byte_rate", 1048576, 2097152)
_WORD: Final = _key("ssl.keystore.password", None, None, secret=True)
_HISTORY: Final = _page(_change(ID, _RATES, _key("acks", None, "all")), _change(OTHER, _key("acks", LONG, None)))
_MOMENT: Final = {"revision": "8589934601", "exact": True}
_QUOTAS, _CONFIGS = "client-quotas", "client-configs"
_RESULT: Final[dict[str, Any]] = {
    "id": "topic=orders", "errorCode": 0, "errorName": "NONE", "errorMessage": None, "warnings": [],
    "diff": [_key("retention.ms", LONG, "86400000"), _WORD],
}  # fmt: skip
CASES: Final[dict[str, dict[str, Any]]] = {
    "get topic=orders": {"configs/topic=orders": {"configs": {"retention.ms": "86400000", "a": LONG, "b": HOSTILE}}},
    "get --type topic": {
        "configs": _page(
            {"id": "topic=orders", "configs": {"leader.replication.throttled.replicas": LONG, "b": None}},
            {"id": "topic=payments-of-all-countries", "configs": {"retention.ms": "86400000"}},
        )
    },
    "effective topic=orders": {
        "configs/topic=orders/effective": {
            "configs": [
                {"key": "retention.ms", "value": "86400000", "source": "DYNAMIC_TOPIC_CONFIG"},
                {"key": "leader.replication.throttled.replicas", "value": LONG, "source": "DYNAMIC_DEFAULT_BROKER_CONFIG"},
            ],
            "warnings": [],
        }
    },
    "history user=alice": {f"{_QUOTAS}/user=alice/history": _HISTORY, f"{_CONFIGS}/user=alice/history": NOTHING},
    "diff topic=orders --from 8589934601": {
        "configs/topic=orders/diff": {"before": _MOMENT, "after": _MOMENT, "changes": [*_RESULT["diff"]]}
    },
    "audit": {"audit": _page(_audited(("user=alice", ["acks", "producer_byte_rate"]), ("topic=orders", ["retention.ms"])))},
    f"audit {ID}": {f"audit/{ID}": _audited(("user=alice", ["acks"]), ("topic=orders", ["retention.ms"]))},
    "drift list": {
        "drift": _page(
            {
                "id": "user=alice", "observedAt": TIME, "refusedMessage": "Invalid quota: below the least value",
                "keys": [
                    {"key": "producer_byte_rate", "state": "refused", "ours": 1048576, "theirs": None, "since": TIME,
                     "principal": BY, "secret": False},
                    {"key": "acks", "state": "extra", "ours": None, "theirs": "all", "since": None, "principal": None,
                     "secret": False},
                ],
            }
        )
    },
    f"revert --change {ID} --validate-only": {"revert": {"failed": 0, "skipped": [], "results": [_RESULT]}},
    "set topic=orders retention.ms=86400000 --validate-only": {"incrementalAlter": {"responses": [_RESULT]}},
    "clusters": {
        "/v1/clusters": {
            "items": [
                {"name": "payments", "session": "connected", "mirror": "fresh", "frozen": "upgrade to 3.9, CHG-1234",
                 "revision": "8589934602", "warnings": ["Broker 3 is not registered.", "The disk is nearly full."]},
                {"name": "default", "session": "lost", "mirror": "stale", "frozen": None, "revision": "7", "warnings": []},
            ]
        }
    },
    "whoami": {
        "/v1/whoami": {
            "principal": BY, "groups": ["Group:payments"], "onBehalfOf": None, "owner": None, "tokenId": ID,
            "authenticatedBy": "token", "expiresAt": TIME, "narrowing": None,
            "grants": [
                {"principal": "Group:payments", "permission": "allow", "operation": "ALTER_CONFIGS", "role": None,
                 "resourceType": "user", "name": "payments-", "patternType": "prefixed", "cluster": None},
            ],
        }
    },
}  # fmt: skip
WAYS: Final[dict[str, tuple[dict[str, str], list[str]]]] = {
    "60 columns": ({"COLUMNS": "60"}, []),
    "80 columns": ({"COLUMNS": "80"}, []),
    "200 columns": ({"COLUMNS": "200"}, []),
    "80 columns, NO_COLOR": ({"COLUMNS": "80", "NO_COLOR": "1"}, []),
    "a pipe": ({}, []),
    "a pipe, --json": ({}, ["--json"]),
}


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _output(monkeypatch: pytest.MonkeyPatch, line: str, way: str) -> str:
    environment, options = WAYS[way]
    with monkeypatch.context() as patch:
        patch.setenv("TERM", "xterm-256color")
        patch.delenv("NO_COLOR", raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        out = _Terminal() if environment else io.StringIO()
        patch.setattr(sys, "stdout", out)
        cli([*line.split(), *options], standalone_mode=False)
    return out.getvalue()


@pytest.mark.parametrize("line", CASES)
def test_output_at_every_width(answered: Recorded, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    answered.answers |= CASES[line]
    shown = {way: _output(monkeypatch, line, way) for way in WAYS}
    for way, text in shown.items():
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert plain.replace("\n", "").isprintable(), way
    assert "\x1b" not in shown["80 columns, NO_COLOR"] + shown["a pipe"] + shown["a pipe, --json"]
    whole = "".join(f"==== {way}\n{text}" for way, text in shown.items()).replace("\x1b", "\\e")
    golden = GOLDEN / f"{re.sub('[^a-z]+', '-', line.split(' --', maxsplit=1)[0].replace(ID, 'change'))}.txt"
    if os.environ.get("CONFPLANE_WRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(whole, "utf-8")
    assert whole == golden.read_text("utf-8")
