"""The catalog beside Kafka's own classes, release by release."""

import os

import pytest

from tests.catalog.generate import CATALOG, VERSIONS, generate
from tests.catalog.kafka_jars import ToolError


@pytest.mark.interop
def test_catalog_is_what_kafka_s_classes_say() -> None:
    try:
        generated = generate()
    except ToolError as error:
        if os.environ.get("CONFPLANE_REQUIRE_INTEROP") == "1":
            raise
        pytest.skip(f"the catalog can't be generated here: {error}")
    assert {name: (CATALOG / name).read_text() for name in generated} == generated
    written_by_hand = {"__init__.py", "descriptions.json", "renames.json"}
    assert {path.name for path in CATALOG.iterdir() if path.is_file()} == generated.keys() | written_by_hand


@pytest.mark.parametrize("version", ["3.9", "latest", "3.9.1\n", "../3.9.1"])
def test_only_releases_are_fetched(version: str) -> None:
    with pytest.raises(ValueError, match="is not a version of Kafka"):
        generate((*VERSIONS, version))
