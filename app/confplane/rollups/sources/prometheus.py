"""Measurements from Prometheus, by ``GET /api/v1/query_range`` of its HTTP API.

A YAML file names the queries, since the names of metrics and labels depend on the exporter::

    url: https://prometheus:9090          # of the server, with any prefix
    start: 2026-01-01T00:00:00Z
    end: 2026-01-08T00:00:00Z
    step: 60                              # seconds
    labels: {user: user, client-id: client_id}
    queries:                              # quota key -> PromQL, in the quota's unit, the largest broker's
      producer_byte_rate: max by (user, client_id) (kafka_server_produce_byte_rate)
    token_file: /etc/confplane/prometheus # optional: a bearer token

Source of the response format and of the limit: https://prometheus.io/docs/prometheus/latest/querying/api/.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import httpx
import yaml
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from confplane.domain.errors import UnavailableError
from confplane.rollups.levels import CLIENT_QUOTAS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

POINTS: Final = 11_000
"""Maximum number of points of one series in a response of Prometheus."""
_TIMEOUT_S: Final = 60.0
_REFUSED: Final = (400, 422)
"""Statuses with which Prometheus refuses a query."""
_REQUIRED: Final = ("url", "start", "end", "step", "labels", "queries")
_LABELS: Final = ("user", "client-id")


@dataclass(frozen=True, slots=True)
class RangeQueries:
    """The queries of a file."""

    url: str
    start: datetime
    end: datetime
    step_s: float
    labels: Mapping[str, str]
    """``user`` and ``client-id``, at least one of them -> the label of the series with the name."""
    queries: Mapping[str, str]
    """Quota key -> PromQL."""
    token: str | None = field(default=None, repr=False)


class _Series(BaseModel):
    metric: dict[str, str]
    values: list[tuple[float, float]]


class _Data(BaseModel):
    result_type: str = Field(alias="resultType")
    result: list[Any]


class _Success(BaseModel):
    status: Literal["success"]
    data: _Data


_ALL_SERIES: Final = TypeAdapter(list[_Series])
_RANGE: Final = "matrix"
"""The type of the response to a query over a range."""

Sample = tuple[datetime, str, str, str, float]
"""A row of the schema ``USAGE``."""


def read_range_queries(path: str) -> RangeQueries:
    """Read a file of queries.

    Raises:
        ValueError: The file can't be read, or is not of the form above; the message names the member.
    """
    try:
        given = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        if not isinstance(given, dict):
            raise ValueError("this must be a map")  # noqa: TRY301, TRY004 - it is user input
        return _ranges(given)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None


def _ranges(given: Mapping[str, Any]) -> RangeQueries:
    for name in _REQUIRED:
        if name not in given:
            raise ValueError(f"{name} is missing")
    for name in given:
        if name not in (*_REQUIRED, "token_file"):
            raise ValueError(f"{name!r} is not a known member; there are: {', '.join(_REQUIRED)}, token_file")
    url, step = given["url"], given["step"]
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise ValueError("url must begin with http:// or https://")
    if isinstance(step, bool) or not isinstance(step, (int, float)) or not 0 < step < math.inf:
        raise ValueError(f"step must be a number of seconds above zero, and is {step!r}")
    start, end = (_time(name, given[name]) for name in ("start", "end"))
    if start > end:
        raise ValueError("start must not be after end")
    labels, queries = _texts("labels", given["labels"], _LABELS), _texts("queries", given["queries"], CLIENT_QUOTAS)
    token = Path(str(given["token_file"])).read_text(encoding="utf-8").strip() if "token_file" in given else None
    return RangeQueries(url.rstrip("/"), start, end, float(step), labels, queries, token)


def _time(name: str, given: object) -> datetime:
    # YAML parses times itself, in UTC if they have no offset.
    found = given if isinstance(given, datetime) else None
    if isinstance(given, str):
        found = datetime.fromisoformat(given)
    if found is None:
        raise ValueError(f"{name} must be a time such as 2026-01-31T12:00:00Z")
    return found.replace(tzinfo=found.tzinfo or UTC)


def _texts(name: str, given: object, known: tuple[str, ...]) -> dict[str, str]:
    if not isinstance(given, dict) or not given or not all(isinstance(text, str) for text in given.values()):
        raise ValueError(f"{name} must be a map of texts")
    for key in given:
        if key not in known:
            raise ValueError(f"{name}: {key!r} is not known; there are: {', '.join(known)}")
    return dict(given)


def samples(ranges: RangeQueries) -> Iterator[Sample]:
    """Yield the measurements of all queries, in chunks of at most :data:`POINTS` times each.

    Series without a user and without a client-id, and points that are not finite, are omitted.

    Raises:
        ValueError: Prometheus refused a query; the message is its own.
        UnavailableError: Prometheus is unavailable, or its response does not have the expected form.
    """
    piece = timedelta(seconds=ranges.step_s) * (POINTS - 1)
    for metric, query in ranges.queries.items():
        start = ranges.start
        while start <= ranges.end:
            end = min(ranges.end, start + piece)
            for series in _range(ranges, query, start, end):
                yield from _points(ranges, metric, series)
            start = end + timedelta(seconds=ranges.step_s)


def _points(ranges: RangeQueries, metric: str, series: _Series) -> Iterator[Sample]:
    user, client = (series.metric.get(ranges.labels.get(name, ""), "") for name in _LABELS)
    if not user and not client:
        return
    for at, value in series.values:
        if math.isfinite(value) and value >= 0:
            yield datetime.fromtimestamp(at, UTC), user, client, metric, value


def _range(ranges: RangeQueries, query: str, start: datetime, end: datetime) -> list[_Series]:
    """Return the series of one query over one range."""
    params: dict[str, str | float] = {
        "query": query,
        "start": start.timestamp(),
        "end": end.timestamp(),
        "step": ranges.step_s,
    }
    headers = {} if ranges.token is None else {"Authorization": f"Bearer {ranges.token}"}
    try:
        # Redirects are not followed: they would send the token to another server.
        response = httpx.get(
            f"{ranges.url}/api/v1/query_range",
            params=params,
            headers=headers,
            timeout=_TIMEOUT_S,
            follow_redirects=False,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = str(error) or type(error).__name__
        raise UnavailableError(f"Prometheus at {ranges.url} does not answer: {why}") from None
    answer = _json(response)
    if not response.is_success and not (response.status_code in _REFUSED and isinstance(answer, dict)):
        raise UnavailableError(f"Prometheus answers {response.status_code}")
    if isinstance(answer, dict) and "status" in answer and answer["status"] != "success":
        raise ValueError(f"Prometheus refused the query {query!r}: {answer.get('error', 'it gave no reason')}")
    try:
        data = _Success.model_validate(answer).data
        found = _ALL_SERIES.validate_python(data.result) if data.result_type == _RANGE else None
    except ValidationError:
        raise UnavailableError(f"Prometheus at {ranges.url} does not answer in its form") from None
    if found is None:
        raise ValueError(f"The query {query!r} gives no series over a range")
    return found


def _json(response: httpx.Response) -> object:
    """Return the JSON of a response, or None if the response is not JSON."""
    try:
        return response.json()
    except ValueError:
        return None
