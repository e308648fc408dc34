"""Examples of bodies, as the specification shows them. A test sends each of them."""

from __future__ import annotations

from typing import Any, Final

ALTER: Final[dict[str, Any]] = {
    "quotas": {
        "summary": "A quota for one user, and one for all client-ids that have none of their own; both or neither",
        "value": {
            "entries": [
                {
                    "entity": [{"entityType": "user", "entityName": "alice"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1048576}],
                },
                {
                    "entity": [{"entityType": "client-id", "entityName": None}],
                    "ops": [{"key": "request_percentage", "value": 50.5}],
                },
            ],
            "atomic": True,
        },
    }
}

DESCRIBE: Final[dict[str, Any]] = {
    "everything": {"summary": "All quotas of the cluster", "value": {"components": []}},
    "default-client": {
        "summary": "The default client-id alone",
        "value": {"components": [{"entityType": "client-id", "matchType": "default"}], "strict": True},
    },
}

RESOURCE: Final[dict[str, Any]] = {
    "quotas": {
        "summary": "All quotas of a user",
        "value": {"id": "user=alice", "quotas": {"producer_byte_rate": 1048576, "request_percentage": 50.5}},
    }
}
