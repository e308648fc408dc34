from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import pytest

from confplane.client.dynamic.config_follower import LastKnownGoodFile

if TYPE_CHECKING:
    from pathlib import Path

BOUND = ("http://confplane.test", "default", "user=alice,client-id=billing")


def test_values_come_back(tmp_path: Path) -> None:
    kept = LastKnownGoodFile(tmp_path / "kept.json", BOUND)
    assert kept.load() is None
    kept.save({"acks": "1"})
    kept.save({"acks": "all"})
    assert kept.load() == {"acks": "all"}
    assert stat.S_IMODE((tmp_path / "kept.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json"]


@pytest.mark.parametrize("index", range(3))
def test_values_of_another_client_cluster_or_service_are_not_read(tmp_path: Path, index: int) -> None:
    LastKnownGoodFile(tmp_path / "kept.json", BOUND).save({"acks": "all"})
    other = tuple("other" if place == index else text for place, text in enumerate(BOUND))
    assert LastKnownGoodFile(tmp_path / "kept.json", (other[0], other[1], other[2])).load() is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"[]", b"null", json.dumps({"boundTo": BOUND}).encode(),
     json.dumps({"boundTo": BOUND, "configs": {"acks": 1}}).encode()],
)  # fmt: skip
def test_a_file_of_another_form_is_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "kept.json").write_bytes(content)
    assert LastKnownGoodFile(tmp_path / "kept.json", BOUND).load() is None


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "kept.json").mkdir()
    with pytest.raises(OSError, match=r"kept\.json"):
        LastKnownGoodFile(tmp_path / "kept.json", BOUND).save({"acks": "all"})
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json"]
    with pytest.raises(FileNotFoundError):
        LastKnownGoodFile(tmp_path / "none" / "kept.json", BOUND).save({})
