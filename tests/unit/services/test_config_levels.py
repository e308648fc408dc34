from __future__ import annotations

import pytest

from confplane.services.reads.config_levels import ServerProperties


@pytest.mark.parametrize(
    ("file", "ids"),
    [
        ({"broker.id": "7"}, ("7", "7")),
        ({"node.id": "7"}, ("7", "7")),
        ({"broker.id": "7", "node.id": "8"}, ("7", "8")),
        ({}, (None, None)),
    ],
)
def test_a_broker_s_two_ids_stand_in_for_each_other(file: dict[str, str], ids: tuple[str | None, str | None]) -> None:
    file = {**file, "log.dirs": "/data"}
    for found in (ServerProperties({7: file}).of(7), ServerProperties(others=file).of(7)):
        assert found is not None
        assert (found.get("broker.id"), found.get("node.id")) == ids
        assert found["log.dirs"] == "/data"
    assert ServerProperties({7: file}).of(8) is None
