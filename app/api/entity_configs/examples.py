"""Examples of bodies, as the specification shows them. A test sends each of them."""

from __future__ import annotations

from typing import Any, Final

ALTER: Final[dict[str, Any]] = {
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

DESCRIBE: Final[dict[str, Any]] = {
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
