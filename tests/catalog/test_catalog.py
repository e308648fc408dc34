import os

import pytest

from tests.catalog.generate import ENTITIES, file_of, generate
from tests.catalog.kafka_jars import ToolError


@pytest.mark.interop
def test_catalog_is_what_kafka_s_classes_say() -> None:
    try:
        generated = generate()
    except ToolError as error:
        if os.environ.get("CONFPLANE_REQUIRE_INTEROP") == "1":
            raise
        pytest.skip(f"the catalog can't be generated here: {error}")
    assert {entity: file_of(entity).read_text() for entity in ENTITIES} == generated


@pytest.mark.parametrize("version", ["3.9", "latest", "3.9.1\n", "../3.9.1"])
def test_only_releases_are_fetched(version: str) -> None:
    with pytest.raises(ValueError, match="is not a version of Kafka"):
        generate(version)
