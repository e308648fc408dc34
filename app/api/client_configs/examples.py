"""Examples of bodies, as the specification shows them. A test sends each of them."""

from __future__ import annotations

from typing import Any, Final

_ALICE: Final = [{"entityType": "user", "entityName": "alice"}]
_OVERRIDE: Final = [*_ALICE, {"entityType": "client-id", "entityName": "clientid-override"}]

ALTER: Final[dict[str, Any]] = {
    "kip-649": {
        "summary": "KIP-649's worked example: a user's configs, and one client-id that overrides them",
        "value": {
            "entries": [
                {
                    "entity": _ALICE,
                    "ops": [
                        {"key": "acks", "value": "all"},
                        {"key": "session.timeout.ms", "value": "20000"},
                        {"key": "heartbeat.interval.ms", "value": "5000"},
                    ],
                },
                {"entity": _OVERRIDE, "ops": [{"key": "session.timeout.ms", "value": "11000"}]},
            ]
        },
    },
    "remove": {
        "summary": "Remove a config; the client-id falls back on the user's",
        "value": {
            "entries": [{"entity": _OVERRIDE, "ops": [{"key": "heartbeat.interval.ms", "remove": True}]}],
            "validateOnly": True,
        },
    },
}

DESCRIBE: Final[dict[str, Any]] = {
    "filter": {
        "summary": "Everything of one user",
        "value": {"components": [{"entityType": "user", "matchType": "exact", "match": "alice"}]},
    },
    "resolve": {
        "summary": "The poll of an application: the configs effective for it, while it registers what it supports",
        "value": {
            "components": [
                {"entityType": "user", "matchType": "exact", "match": "alice"},
                {"entityType": "client-id", "matchType": "exact", "match": "clientid-override"},
            ],
            "resolveEntity": True,
            "supportedConfigs": ["acks", "heartbeat.interval.ms", "session.timeout.ms"],
            "clientInformation": {"softwareName": "apache-kafka-java", "softwareVersion": "3.9.1"},
        },
    },
}

RESOURCE: Final[dict[str, Any]] = {
    "configs": {
        "summary": "All client configs of a user",
        "value": {"id": "user=alice", "configs": {"acks": "-1", "session.timeout.ms": "30000"}},
    }
}
