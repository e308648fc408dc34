"""The JSON Schema of manifests in files, for editors: openapi/manifest.schema.json, which ``make openapi`` writes."""

from __future__ import annotations

from typing import Any, Final

from confplane.api.manifests.models import ManifestDocument
from confplane.domain.definitions import catalog_of
from confplane.domain.quotas import QUOTA_KEYS
from confplane.domain.releases import newest

_SECRET: Final = {
    "type": "object",
    "properties": {
        "fromFile": {"type": "string", "minLength": 1, "description": "A file below the folder of the manifest"},
        "fromEnv": {"type": "string", "minLength": 1, "description": "A variable that begins as --env-prefix says"},
    },
    "additionalProperties": False,
    "minProperties": 1,
    "maxProperties": 1,
}


def file_schema() -> dict[str, Any]:
    """Return the schema: that of the API with the references to secrets, and with the names of keys to choose from."""
    schema = ManifestDocument.model_json_schema()
    entity = schema["$defs"]["ManifestEntity"]
    members, catalog = entity["properties"], catalog_of(newest())
    for member in ("quotas", "clientConfigs", "configs"):
        members[member].pop("default", None)
    members["configs"]["additionalProperties"]["anyOf"].append(_SECRET)
    known = {
        "quotas": QUOTA_KEYS.keys(),
        "clientConfigs": catalog.producer.keys() | catalog.consumer.keys(),
        "configs": catalog.topic.keys() | catalog.broker.keys() | catalog.group.keys() | catalog.client_metrics.keys(),
    }
    for member, keys in known.items():
        schema["$defs"][f"{member}Value"] = members[member]["additionalProperties"]
        reference = {"$ref": f"#/$defs/{member}Value"}
        members[member] |= {"properties": dict.fromkeys(sorted(keys), reference), "additionalProperties": reference}
    entity["anyOf"] = [{"required": [member]} for member in known]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Confplane manifest"}
