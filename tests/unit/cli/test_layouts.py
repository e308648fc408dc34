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

import httpx
import pytest

from confplane.cli.commands import cli

if TYPE_CHECKING:
    from tests.unit.cli.answers import Recorded

GOLDEN: Final = Path(__file__).with_name("golden")
PROFILES: Final = """\
current: production
profiles:
  production: {url: 'https://confplane.example.com', cluster: payments, token_file: /run/secrets/confplane-token}
  people: {url: 'https://confplane-staging.example.com', client_id: confplane-cli}
"""
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


def _event(kind: str, source: str, *entities: tuple[str, list[dict[str, Any]]], **further: Any) -> dict[str, Any]:
    return {
        "type": kind, "id": "cG9z", "revision": "8589934602", "time": TIME, "changeId": ID, "principal": BY,
        "onBehalfOf": None, "reason": None, "ticket": "OPS-12", "source": source, "partial": False,
        "entities": [
            {"facet": "configs", "id": name, "entity": {}, "revision": "8589934602", "keys": keys} for name, keys in entities
        ],
        **further,
    }  # fmt: skip


def _watched(request: httpx.Request) -> httpx.Response:
    """Some events, and then the end of the trail."""
    if "after" in request.url.params:
        return httpx.Response(410, json={"type": "/problems/before-history", "detail": "The trail begins later."})
    page: dict[str, Any] = {"events": _EVENTS, "position": "cG9z", "revision": "8589934602"}
    if "snapshot" in request.url.params:
        page |= {
            "events": [],
            "snapshot": {"states": _STATES, "bookmark": {"type": "bookmark", "revision": "8589934602"}},
        }
    if "requests" in request.url.params:
        page |= {"events": [_event("request", "confplane", request=_REQUESTED)]}
    return httpx.Response(200, json=page)


_REQUESTED: Final[dict[str, Any]] = {
    "id": OTHER, "event": "proposed", "state": "open", "kind": "change", "author": BY, "revision": 1, "comment": None,
    "entities": ["user=alice", HOSTILE],
}  # fmt: skip
_RATES: Final = _key("producer_byte_rate", 1048576, 2097152)
_WORD: Final = _key("ssl.keystore.password", None, None, secret=True)
_EVENTS: Final = [
    _event(
        *("change", "confplane"),
        ("user=alice", [{**_key("producer_byte_rate", None, 2097152), "sensitive": False}]),
        ("topic=orders", [{**_key("ssl.keystore.password", None, None), "sensitive": True}]),
        truncated=True,
    ),
    _event("change", "external", (HOSTILE, [{**_key("acks", LONG, HOSTILE), "sensitive": False}]), ticket=None),
    _event("reset", "confplane"),
]
_STATES: Final = [
    {
        "type": "state", "id": "cG9z", "revision": "8589934601", "time": TIME,
        "entities": [
            {
                "facet": "configs", "id": name, "entity": {}, "revision": "8589934601",
                "keys": [{**_key(key, None, value), "sensitive": secret}],
            }
        ],
    }
    for name, key, value, secret in (
        ("user=alice", "producer_byte_rate", 2097152, False),
        ("broker=1", "ssl.key.password", None, True),
        (HOSTILE, "acks", HOSTILE, False),
    )
]  # fmt: skip
_HISTORY: Final = _page(_change(ID, _RATES, _key("acks", None, "all")), _change(OTHER, _key("acks", LONG, None)))
_MOMENT: Final = {"revision": "8589934601", "exact": True}
_QUOTAS, _CONFIGS = "client-quotas", "client-configs"
_RESULT: Final[dict[str, Any]] = {
    "id": "topic=orders", "errorCode": 0, "errorName": "NONE", "errorMessage": None, "warnings": [],
    "diff": [_key("retention.ms", LONG, "86400000"), _WORD],
}  # fmt: skip
_TOKEN: Final[dict[str, Any]] = {
    "id": ID, "principal": BY, "groups": ["Group:payments"], "owner": "payments", "note": "rotated every month",
    "narrowing": None, "status": "active", "createdAt": TIME, "createdBy": "User:admin", "expiresAt": TIME,
    "revokedAt": None, "lastUsedAt": None, "replaces": None, "createdWith": None,
}  # fmt: skip
_GRANT: Final[dict[str, Any]] = {
    "id": ID, "principal": "Group:payments", "permission": "allow", "cluster": None, "operation": "ALTER_CONFIGS",
    "role": None, "resourceType": "user", "patternType": "prefixed", "name": "payments-", "note": None,
    "createdAt": TIME, "createdBy": "User:admin",
}  # fmt: skip
_ROLE: Final[dict[str, Any]] = {
    **_GRANT, "id": OTHER, "principal": BY, "permission": "deny", "cluster": "payments", "operation": None,
    "role": "operator", "resourceType": None, "patternType": None, "name": None, "note": "on call",
}  # fmt: skip
_RUN: Final[dict[str, Any]] = {
    "id": ID, "asOf": TIME, "startedAt": TIME, "finishedAt": TIME, "principal": BY, "rows": 12345, "previous": OTHER,
    "revisions": {"floor": "1", "horizon": "2", "watermark": "3", "folded": None},
}  # fmt: skip
_ROW: Final[dict[str, Any]] = {
    "configKey": "producer_byte_rate", "entityId": "user=alice,client-id=billing", "value": 1048576.0, "level": 1,
    "source": "user=alice", "budget": "user=alice", "clients": 1, "unlimited": 0, "unreadable": 0, "budgets": 1,
    "capacity": None, "share": None,
}  # fmt: skip
_FREEZE: Final = {"reason": "upgrade to 3.9, CHG-1234", "principal": BY, "since": TIME}
_FROZEN: Final = {"before": None, "after": _FREEZE, "changeId": ID, "revision": "8589934602", "applying": None}
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
    "watch": {"changes": _watched},
    "watch --snapshot": {"changes": _watched},
    "watch --requests": {"changes": _watched},
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
    "delete topic=orders retention.ms": {
        "configs/topic=orders": {"configs": {"retention.ms": LONG}},
        "incrementalAlter": {"responses": [_RESULT | {"revision": "8589934602", "changeId": ID}]},
    },
    "audit --refused": {
        "audit": _page(
            {
                "id": ID, "cluster": "default", "principal": BY, "onBehalfOf": None, "operation": "putConfigs",
                "entity": "topic=orders", "keys": ["retention.ms", "leader.replication.throttled.replicas"],
                "errorCode": 44, "problem": "/problems/policy-violation", "requestId": OTHER, "time": TIME, "count": 12,
            }
        )
    },
    "drift adopt user=alice": {"drift:adopt": {"failed": 0, "results": [{**_RESULT, "id": "user=alice"}]}},
    "drift reapply user=alice": {
        "drift:reapply": {"results": [{"id": "user=alice", "keys": ["acks", "producer_byte_rate"]}]}
    },
    "schedules list": {
        "schedules": {
            **_page(
                {"changeId": ID, "principal": BY, "reason": HOSTILE, "entities": ["topic=orders", "topic=payments"],
                 "revertAt": TIME, "state": "ending", "endChangeId": None, "kept": [],
                 "error": "Cluster payments is frozen: upgrade to 3.9, CHG-1234", "endedAt": None},
                {"changeId": OTHER, "principal": BY, "reason": None, "entities": ["user=alice"], "revertAt": TIME,
                 "state": "ended-partly", "endChangeId": ID, "kept": [{"entity": "user=alice", "key": "acks"}],
                 "error": None, "endedAt": TIME},
            ),
            "pause": None,
        }
    },
    "tokens list": {"/v1/tokens": _page(_TOKEN, {**_TOKEN, "id": OTHER, "status": "revoked", "lastUsedAt": TIME})},
    "tokens create --principal User:app": {"/v1/tokens": {**_TOKEN, "token": "cp_planted"}},
    f"tokens rotate {ID}": {"rotate": {**_TOKEN, "id": OTHER, "token": "cp_planted"}, f"/v1/tokens/{ID}": _TOKEN},
    f"tokens revoke {ID}": {f"/v1/tokens/{ID}": {**_TOKEN, "createdRevoked": 2, "createdActive": 0}},
    "grants list": {"/v1/grants": _page(_GRANT, _ROLE)},
    "grants show --principal User:olga": {
        "access": {
            "items": [
                {"principal": BY, "allowed": False, "grant": _ROLE, "rights": [
                    {"operation": "ALTER_CONFIGS", "resourceType": "topic", "patternType": "literal", "name": "*",
                     "share": None},
                    {"operation": "ALTER", "resourceType": "cluster", "patternType": "literal", "name": "*",
                     "share": None},
                ]},
                {"principal": "Group:payments", "allowed": True, "grant": _GRANT, "rights": [
                    {"operation": "ALTER_CONFIGS", "resourceType": "user", "patternType": "prefixed",
                     "name": "payments-", "share": None},
                ]},
            ]
        }
    },
    "grants create --principal Group:payments --role operator": {"/v1/grants": httpx.Response(201, json=_GRANT)},
    f"grants remove {ID}": {f"/v1/grants/{ID}": _ROLE},
    "freeze --reason upgrade": {"freeze": _FROZEN},
    "freeze --reason again": {"freeze": {**_FROZEN, "before": _FREEZE, "changeId": None, "revision": None}},
    "thaw --reason upgraded": {
        "thaw": {**_FROZEN, "before": _FREEZE, "after": None, "applying": None},
    },
    "rollups list": {
        "rollups": {
            "items": [
                {"name": "quotas", "question": "Which quotas does each registered client have?", "run": _RUN,
                 "lastAttempt": {"id": OTHER, "state": "failed", "asOf": TIME, "startedAt": TIME, "finishedAt": TIME,
                                 "principal": BY, "error": "Postgres is not available"}},
                {"name": "usage", "question": "Who uses how much of the quota?", "run": None, "lastAttempt": None},
            ]
        }
    },
    "rollups show quotas": {
        "rollups/quotas": {"run": _RUN, "items": [_ROW, {**_ROW, "entityId": "", "clients": 7}], "nextPageToken": None}
    },
    "profiles list": {},
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


@pytest.fixture(autouse=True)
def _profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the commands on profiles a file."""
    file = tmp_path / "profiles.yaml"
    file.write_text(PROFILES, "utf-8")
    monkeypatch.setenv("CONFPLANE_PROFILES", str(file))


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
    golden = (
        GOLDEN
        / f"{re.sub('[^a-z]+', '-', line.replace(' --validate-only', '').replace(f'audit {ID}', 'audit change').replace(ID, ''))}.txt"
    )
    if os.environ.get("CONFPLANE_WRITE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(whole, "utf-8")
    assert whole == golden.read_text("utf-8")
