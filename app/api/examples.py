"""Examples of request bodies in the specification. A test sends each of them."""

from __future__ import annotations

from typing import Any, Final

_ALICE: Final = [{"entityType": "user", "entityName": "alice"}]
_OVERRIDE: Final = [*_ALICE, {"entityType": "client-id", "entityName": "clientid-override"}]

ALTER_CLIENT_CONFIGS: Final[dict[str, Any]] = {
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

DESCRIBE_CLIENT_CONFIGS: Final[dict[str, Any]] = {
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

ALTER_CLIENT_QUOTAS: Final[dict[str, Any]] = {
    "quotas": {
        "summary": "A quota for one user, and one for all client-ids that have none of their own; both or neither",
        "value": {
            "entries": [
                {"entity": _ALICE, "ops": [{"key": "producer_byte_rate", "value": 1048576}]},
                {
                    "entity": [{"entityType": "client-id", "entityName": None}],
                    "ops": [{"key": "request_percentage", "value": 50.5}],
                },
            ],
            "atomic": True,
        },
    }
}

DESCRIBE_CLIENT_QUOTAS: Final[dict[str, Any]] = {
    "everything": {"summary": "All quotas of the cluster", "value": {"components": []}},
    "default-client": {
        "summary": "The default client-id alone",
        "value": {"components": [{"entityType": "client-id", "matchType": "default"}], "strict": True},
    },
}

CLIENT_QUOTAS: Final[dict[str, Any]] = {
    "quotas": {
        "summary": "All quotas of a user",
        "value": {"id": "user=alice", "quotas": {"producer_byte_rate": 1048576, "request_percentage": 50.5}},
    }
}

CLIENT_CONFIGS: Final[dict[str, Any]] = {
    "configs": {
        "summary": "All client configs of a user",
        "value": {"id": "user=alice", "configs": {"acks": "-1", "session.timeout.ms": "30000"}},
    }
}

DESCRIBE_CONFIGS: Final[dict[str, Any]] = {
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

INCREMENTAL_ALTER_CONFIGS: Final[dict[str, Any]] = {
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

CONFIGS: Final[dict[str, Any]] = {
    "topic": {
        "summary": "All configs of a topic",
        "value": {"id": "topic=orders", "configs": {"retention.ms": "86400000", "cleanup.policy": "delete"}},
    }
}

CHANGE_GLOBAL_CONFIG: Final[dict[str, Any]] = {
    "change": {
        "summary": "Set one config for all brokers, and remove another",
        "value": {
            "configData": [
                {"configKey": "message.max.bytes", "configValue": "2000000"},
                {"configKey": "log.cleaner.threads", "configValue": None},
            ]
        },
    }
}

ALTER_ENTITY_CONFIGS: Final[dict[str, Any]] = {
    "several": {
        "summary": "A topic, a client-id and all brokers at once; the deleted keys are answered with what takes over",
        "value": {
            "entities": [
                {
                    "entityType": "topics",
                    "entityName": "orders",
                    "addedConfigs": [{"configKey": "cleanup.policy", "configValue": "compact"}],
                    "deletedConfigs": ["retention.ms"],
                },
                {
                    "entityType": "clients",
                    "entityName": "billing",
                    "addedConfigs": [{"configKey": "producer_byte_rate", "configValue": "1048576"}],
                },
                {"entityType": "brokers", "entityName": None, "deletedConfigs": ["message.max.bytes"]},
            ]
        },
    }
}

DESCRIBE_ENTITY_CONFIGS: Final[dict[str, Any]] = {
    "several": {
        "summary": "A topic, a client-id and the default of all brokers",
        "value": {
            "entities": [
                {"entityType": "topic", "entityName": "orders"},
                {"entityType": "client-id", "entityName": "billing"},
                {"entityType": "broker", "entityName": None},
            ]
        },
    }
}

BODIES: Final[dict[str, dict[str, Any]]] = {
    "describeClientQuotas": DESCRIBE_CLIENT_QUOTAS,
    "createClientQuotas": CLIENT_QUOTAS,
    "putClientQuotas": CLIENT_QUOTAS,
    "alterClientQuotas": ALTER_CLIENT_QUOTAS,
    "createClientConfigs": CLIENT_CONFIGS,
    "putClientConfigs": CLIENT_CONFIGS,
    "alterClientConfigs": ALTER_CLIENT_CONFIGS,
    "describeClientConfigs": DESCRIBE_CLIENT_CONFIGS,
    "createConfigs": CONFIGS,
    "putConfigs": CONFIGS,
    "incrementalAlterConfigs": INCREMENTAL_ALTER_CONFIGS,
    "describeConfigs": DESCRIBE_CONFIGS,
    "changeGlobalConfig": CHANGE_GLOBAL_CONFIG,
    "alterEntityConfigs": ALTER_ENTITY_CONFIGS,
    "describeEntityConfigs": DESCRIBE_ENTITY_CONFIGS,
}
"""Examples by operation id, in the order in which all of them succeed on an empty cluster."""
