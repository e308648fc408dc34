"""Fields of messages: those that a version lacks, tagged ones, and arrays that announce more than there is."""

from __future__ import annotations

from uuid import UUID

import pytest

from confplane.kraft.wire.errors import WireError
from confplane.kraft.wire.messages import ApiVersionsResponse, DescribeClusterRequest, FetchRequest, MetadataRequest
from confplane.kraft.wire.messages.cluster import MetadataRequestTopic
from confplane.kraft.wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from confplane.kraft.wire.messages.connection import ApiVersion, SupportedFeatureKey
from confplane.kraft.wire.messages.fetch import FetchPartition, FetchTopic

DIRECTORY = UUID(int=7)


def test_a_value_that_a_version_lacks_is_refused() -> None:
    assert DescribeClusterRequest(endpoint_type=2).encode(1) == b"\0\2\0"
    with pytest.raises(WireError, match="no place for include_fenced_brokers"):
        DescribeClusterRequest(include_fenced_brokers=True).encode(1)
    assert DescribeClusterRequest(include_fenced_brokers=True).encode(2) == b"\0\1\1\0"


def test_a_value_that_may_be_ignored_is_left_out() -> None:
    def fetched(version: int) -> FetchPartition:
        partition = FetchPartition(partition=3, replica_directory_id=DIRECTORY)
        request = FetchRequest(topics=(FetchTopic(partitions=(partition,)),))
        return FetchRequest.decode(request.encode(version), version).topics[0].partitions[0]

    assert fetched(16) == FetchPartition(partition=3)
    assert fetched(17) == FetchPartition(partition=3, replica_directory_id=DIRECTORY)


def test_tagged_fields_begin_with_version_3_and_unknown_ones_are_skipped() -> None:
    answer = ApiVersionsResponse(
        api_keys=(ApiVersion(18, 0, 4),),
        supported_features=(SupportedFeatureKey("kraft.version", 0, 1),),
        finalized_features_epoch=9,
    )
    data = answer.encode(3)
    assert ApiVersionsResponse.decode(data, 3) == answer
    assert ApiVersionsResponse.decode(answer.encode(0), 0) == ApiVersionsResponse(api_keys=answer.api_keys)
    [tags] = [at for at in range(len(data)) if data[at:].startswith(b"\2\0\x14")]  # two tags, the first of 20 bytes
    with_unknown = data[:tags] + b"\3" + data[tags + 1 :] + b"\x63\2ab"
    assert ApiVersionsResponse.decode(with_unknown, 3) == answer


def test_null_is_not_an_empty_array() -> None:
    assert MetadataRequest.decode(MetadataRequest(topics=None).encode(12), 12).topics is None
    assert MetadataRequest.decode(MetadataRequest(topics=()).encode(12), 12).topics == ()
    topics = (MetadataRequestTopic(name=None), MetadataRequestTopic(DIRECTORY, "orders"))
    assert MetadataRequest.decode(MetadataRequest(topics=topics).encode(12), 12).topics == topics


@pytest.mark.parametrize(("announced", "fits"), [(b"\4", True), (b"\5", False)])
def test_an_array_announces_no_more_than_the_bytes_can_hold(announced: bytes, *, fits: bool) -> None:
    data = b"\0\0" + announced + b"\0\x12\0\0\0\4\0" * 3
    expected = "the bytes end too early" if fits else "4 elements are announced, 21 bytes are left"
    with pytest.raises(WireError, match=expected):
        ApiVersionsResponse.decode(data, 3)


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 128, 16_383])
@pytest.mark.parametrize("letter", ["x", "\N{EURO SIGN}"])
def test_texts_of_every_length_are_read_as_they_are_written(letter: str, length: int) -> None:
    resources = (DescribeConfigsResource(2, letter * length, None), DescribeConfigsResource(4, "1", (letter,)))
    request = DescribeConfigsRequest(resources=resources)
    assert DescribeConfigsRequest.decode(request.encode(4), 4) == request
