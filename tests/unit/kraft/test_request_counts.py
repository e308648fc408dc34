"""Requests count once for each code of their response: those of the parts, unless the whole failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from confplane.kraft.wire.messages import FetchResponse, IncrementalAlterConfigsResponse
from confplane.kraft.wire.messages.configs import AlterConfigsResourceResponse
from confplane.kraft.wire.messages.fetch import FetchableTopicResponse, PartitionData
from confplane.kraft.wire.options import RequestCounts

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


def alters(*codes: int) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(responses=tuple(AlterConfigsResourceResponse(code) for code in codes))


def fetches(whole: int, *codes: int) -> FetchResponse:
    topics = [FetchableTopicResponse(partitions=(PartitionData(error_code=code),)) for code in codes]
    return FetchResponse(error_code=whole, responses=tuple(topics))


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (alters(), {"NONE"}),
        (alters(0, 0), {"NONE"}),
        (alters(3, 0, 3), {"NONE", "UNKNOWN_TOPIC_OR_PARTITION"}),
        (alters(3, 7), {"UNKNOWN_TOPIC_OR_PARTITION", "REQUEST_TIMED_OUT"}),
        (fetches(0, 0, 3), {"NONE", "UNKNOWN_TOPIC_OR_PARTITION"}),
        (fetches(7, 0, 3), {"REQUEST_TIMED_OUT"}),
        (object(), {"NONE"}),
    ],
)
def test_a_response_counts_once_for_each_of_its_codes(answer: object, names: AbstractSet[str]) -> None:
    counts = RequestCounts()
    counts.answered("Any", answer)
    assert counts.outcomes == {("Any", name): 1 for name in names}
