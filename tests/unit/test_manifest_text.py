"""The texts of exported manifests."""

from __future__ import annotations

import pytest

from confplane.manifest_text import LabelsOfOwner

ONE, OTHER = {"team": "x"}, {"team": "y"}
NONE_TEXT = "# The labels of the entities differ, so the manifest has none.\n"


@pytest.mark.parametrize(
    ("found", "members", "text"),
    [
        ([], {}, ""),
        ([{}], {}, ""),
        ([ONE], {"labels": ONE}, "labels:\n  team: x\n"),
        ([ONE, ONE], {"labels": ONE}, "labels:\n  team: x\n"),
        ([ONE, {}], {}, NONE_TEXT),
        ([ONE, OTHER, ONE], {}, NONE_TEXT),
    ],
)
def test_a_manifest_has_the_labels_that_all_of_its_entities_have(
    found: list[dict[str, str]], members: dict[str, dict[str, str]], text: str
) -> None:
    labels = LabelsOfOwner()
    for each in found:
        labels.add(each)
    assert (labels.members, labels.text) == (members, text)
