"""Examples of bodies, as the specification shows them. A test sends each of them."""

from __future__ import annotations

from typing import Any, Final

DESCRIBE: Final[dict[str, Any]] = {
    "topic": {
        "summary": "Two configs of a topic, with every value that is set for them anywhere",
        "value": {
            "resources": [
                {
                    "resourceType": "TOPIC",
                    "resourceName": "orders",
                    "configurationKeys": ["retention.ms", "cleanup.policy"],
                }
            ],
            "includeSynonyms": True,
        },
    },
    "brokers": {
        "summary": "All configs of a broker, and what is set for all brokers, with a sentence on each",
        "value": {
            "resources": [
                {"resourceType": "BROKER", "resourceName": "0"},
                {"resourceType": "BROKER", "resourceName": ""},
            ],
            "includeDocumentation": True,
        },
    },
}

INCREMENTAL_ALTER: Final[dict[str, Any]] = {
    "topic": {
        "summary": "Keep a topic's records for a day, and compact it as well",
        "value": {
            "resources": [
                {
                    "resourceType": "TOPIC",
                    "resourceName": "orders",
                    "configs": [
                        {"name": "retention.ms", "configOperation": "SET", "value": "86400000"},
                        {"name": "cleanup.policy", "configOperation": "APPEND", "value": "compact"},
                    ],
                }
            ]
        },
    },
    "brokers": {
        "summary": "A default for all brokers and an exception for one; both or neither",
        "value": {
            "resources": [
                {
                    "resourceType": "BROKER",
                    "resourceName": "",
                    "configs": [{"name": "log.cleaner.threads", "configOperation": "SET", "value": "2"}],
                },
                {
                    "resourceType": "BROKER",
                    "resourceName": "0",
                    "configs": [{"name": "log.retention.ms", "configOperation": "SET", "value": "604800000"}],
                },
            ],
            "atomic": True,
        },
    },
}

RESOURCE: Final[dict[str, Any]] = {
    "topic": {
        "summary": "All configs of a topic",
        "value": {"id": "topic=orders", "configs": {"retention.ms": "86400000", "cleanup.policy": "delete"}},
    }
}
