"""The use of quotas as a reference in plain Python has it; measurements out of files and out of Prometheus."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest

from confplane.domain.errors import UnavailableError
from confplane.rollups import schemas
from confplane.rollups.jobs import quotas, usage
from confplane.rollups.sources import prometheus
from confplane.rollups.sources import usage as sources_usage
from confplane.rollups.sources.usage import Measurements, read_usage
from tests.rollups.references import usage as reference
from tests.support.inside import running_inside

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.support import servers

Row = dict[str, Any]
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
ODD: Final = 'O\'Brien, "x" é 🐘 ~7E%'
CAPACITY: Final = {"producer_byte_rate": 1000.0}
CONFIGS: Final = {
    "user": {"producer_byte_rate": "100"},
    "client-id": {"request_percentage": "12.5", "consumer_byte_rate": "40"},
    "user=shared": {"producer_byte_rate": "64"},
    "user=shared,client-id=own": {"producer_byte_rate": "1024"},
    "user=broken": {"producer_byte_rate": "soon"},
    "user,client-id=c": {"controller_mutation_rate": "0.5"},
    "user,client-id": {"consumer_byte_rate": "0"},
}
CLIENTS: Final = [
    ("shared", "a", 24), ("shared", "b", 56), ("shared", "own", 100), ("broken", "c", 7), ("idle", "c", 1), (ODD, ODD, 90),
    (ODD, None, 3), (None, "c", 12), ("", ODD, 8),
]  # fmt: skip


def measured() -> list[Row]:
    """Ten minutes of several brokers; values are eighths, so that sums are exact in any order."""
    numbers = random.Random(1)  # noqa: S311 - of no use to an attacker
    return [
        {
            "time": START + timedelta(minutes=minute), "user": user, "client_id": client, "metric": metric,
            "value": numbers.randrange(8 * most) / 8,
        }
        for metric in (*reference.KEYS, "another")
        for user, client, most in CLIENTS
        for minute in range(10)
        for _ in range(2)
        if (metric, user) != ("request_percentage", "idle")
    ]  # fmt: skip


def znodes() -> list[Row]:
    flags = {"tree": "/config", "undecodable": False, "forbidden": False}
    rows = [{"entity_id": entity, "config": config, **flags} for entity, config in CONFIGS.items()]
    hidden = {"config": {"producer_byte_rate": "1"}, **flags}
    return [*rows, {**hidden, "entity_id": "user=idle", "forbidden": True}, {**hidden, "entity_id": None}]


def frame_of(spark: SparkSession, configs: list[Row]) -> DataFrame:
    names = usage.JOB.inputs["znodes"]
    schema = spark.createDataFrame([], schemas.ZNODES).select(*names).schema
    return spark.createDataFrame([tuple(row[name] for name in names) for row in configs], schema)


def rows_of(spark: SparkSession, used: list[Row], configs: list[Row]) -> list[Row]:
    measurements = spark.createDataFrame([tuple(row.values()) for row in used], schemas.USAGE)
    found = usage.JOB(usage=measurements, znodes=frame_of(spark, configs), capacity=CAPACITY)
    return [row.asDict() for row in found.collect()]


def plain(row: Row) -> Row:
    bodies = {name: row[name] and json.loads(row[name]) for name in ("proposal", "default_proposal")}
    rounded = {name: round(value, 9) for name, value in row.items() if isinstance(value, float)}
    return {**row, **rounded, **bodies}


def by_key(rows: list[Row]) -> dict[tuple[str, str], Row]:
    found = {(row["config_key"], row["budget"]): plain(row) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> list[Row]:
    return rows_of(spark, measured(), znodes())


def test_use_is_compared_with_quotas_as_defined(rows: list[Row]) -> None:
    found = by_key(rows)
    assert found == by_key(reference.usage(measured(), znodes(), CAPACITY))
    states = {place: row["state"] for place, row in found.items()}
    # Two clients share one quota of 64, and use more than that together; the third has its own.
    assert states["producer_byte_rate", "user=shared"] == "throttled"
    assert states["producer_byte_rate", "user=shared,client-id=own"] == "distant"
    assert states["producer_byte_rate", "user=broken"] == "unreadable"
    assert states["producer_byte_rate", "user=idle"] == "distant"
    assert states["producer_byte_rate", "client-id=c"] == "unlimited"
    assert found["producer_byte_rate", ""]["share"] == (64 + 1024 + 100 + 100) / 1000
    assert set(states.values()) == {"throttled", "distant", "within", "unlimited", "unreadable", "total"}


def test_a_budget_that_a_default_throttles_has_a_proposal_for_the_default_too(rows: list[Row]) -> None:
    found = by_key(rows)
    throttled = found["request_percentage", "client-id=a"]
    assert (throttled["state"], throttled["level"], throttled["source"]) == ("throttled", 8, "client-id")
    of_default = [{"entityType": "client-id", "entityName": None}]
    ops = [{"key": "request_percentage", "value": 18.75}]
    assert throttled["default_proposal"] == {"entries": [{"entity": of_default, "ops": ops}]}
    of_budget = [{"entityType": "client-id", "entityName": "a"}]
    assert throttled["proposal"] == {"entries": [{"entity": of_budget, "ops": ops}]}
    # A quota of one entity is raised there, and no default is changed for those who use little.
    assert found["producer_byte_rate", "user=shared"]["default_proposal"] is None
    assert {row["state"] for row in found.values() if row["default_proposal"]} == {"throttled"}


def test_sums_are_exact(spark: SparkSession) -> None:
    flags = {"tree": "/config", "undecodable": False, "forbidden": False}
    clients = [f"user=u{number}" for number in range(10)]
    configs = [{"entity_id": each, "config": {"request_percentage": "0.1"}, **flags} for each in clients]
    used = [
        {
            "time": START,
            "user": each.removeprefix("user="),
            "client_id": None,
            "metric": "request_percentage",
            "value": 0.1,
        }
        for each in clients
    ]
    [total] = [row for row in rows_of(spark, used, configs) if not row["budget"]]
    assert (total["quota"], total["mean"], total["peak"]) == (1.0, 1.0, 1.0)
    registered = spark.createDataFrame([(each,) for each in clients], "entity_id string")
    znodes_frame = frame_of(spark, configs)
    quotas_of_all = quotas.JOB(registrations=registered, znodes=znodes_frame, capacity={})
    assert [row.value for row in quotas_of_all.where("entity_id = '' AND budgets > 0").collect()] == [1.0]


def test_proposals_are_alters_that_the_service_takes(
    rows: list[Row], chroot: str, migrated: servers.Database, tmp_path: Path
) -> None:
    proposals = [
        json.loads(row[name]) for row in rows for name in ("proposal", "default_proposal") if row[name] is not None
    ]
    assert len(proposals) > 5

    async def validated() -> list[Any]:
        async with running_inside(chroot, migrated, tmp_path) as inside:
            path = "client-quotas:alter?validateOnly=true"
            answers = [await inside.send("admin", "POST", path, body) for body in proposals]
            return [(answer.status_code, answer.json()["entries"][0]["errorCode"]) for answer in answers]

    assert set(asyncio.run(validated())) == {(200, 0)}


CSV: Final = """metric,client-id,user,time,value,host
producer_byte_rate,"a ""b"", c",O'Brien,2026-01-01T00:00:00Z,1.5,x
producer_byte_rate,c,,2026-01-01T01:00:00+01:00,2,x
other,c,,never,x,x
"""


def test_files_are_read_by_the_names_of_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    path.write_text(CSV)
    wanted = {("O'Brien", 'a "b", c', 1.5), (None, "c", 2.0)}
    csv = read_usage(spark, Measurements.of(str(path)))
    assert {(row.user, row.client_id, row.value) for row in csv.collect()} == wanted
    assert {row[0] for row in csv.selectExpr("unix_seconds(time)").collect()} == {int(START.timestamp())}
    csv.withColumnRenamed("client_id", "client-id").write.parquet(str(tmp_path / "measured"))
    parquet = read_usage(spark, Measurements.of(str(tmp_path / "measured")))
    assert {(row.user, row.client_id, row.value) for row in parquet.collect()} == wanted


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (CSV.replace("value", "figure"), "has no column 'value'; it needs time, user, client-id, metric, value"),
        (CSV.replace(",2,", ",two,"), "value is not a number from 0 on: .*two"),
        (CSV.replace(",2,", ",-2,"), "value is not a number from 0 on: .*-2"),
        (CSV.replace("2026-01-01T00", "yesterday"), "time is not a time .*yesterday"),
        (CSV.replace("byte_rate,c,", "byte_rate,,"), "neither user nor client-id is given"),
        (CSV.replace("producer_byte_rate", "bytes"), "has no row with a metric among consumer_byte_rate"),
    ],
)
def test_files_that_are_not_of_the_form(spark: SparkSession, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "measured.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        read_usage(spark, Measurements.of(str(path)))


def test_files_are_checked_and_sized_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "measured.csv"
    with pytest.raises(ValueError, match="does not exist"):
        Measurements.of(str(path))
    path.write_text(CSV)
    assert Measurements.of(str(path)).is_small
    assert Measurements.of(f"file://{path}").is_small
    # Only Spark knows what these are.
    assert not Measurements.of(f"{tmp_path}/*.csv").is_small
    assert not Measurements.of("s3a://lake/measured").is_small
    monkeypatch.setattr(sources_usage, "MOST", 1)
    assert not Measurements.of(str(path)).is_small


class Prometheus(BaseHTTPRequestHandler):
    """As its documentation has it: a matrix of series, at most 11,000 points each, and errors with their reason."""

    asked: list[tuple[str, dict[str, str], str | None]]

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        self.asked.append((address.path, query, self.headers["Authorization"]))
        start, end, step = (float(query[name]) for name in ("start", "end", "step"))
        if query["query"] == "moved":
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
        elif query["query"] == "away":
            self.answer(503, {"status": "error", "errorType": "unavailable", "error": "starting"})
        elif query["query"] == "rate(":
            self.answer(
                400, {"status": "error", "errorType": "bad_data", "error": "parse error: unclosed left parenthesis"}
            )
        elif query["query"].startswith("SUCCESS: "):
            self.answer(200, {"status": "success", **json.loads(query["query"].removeprefix("SUCCESS: "))})
        elif (end - start) / step >= 11_000:
            self.answer(400, {"status": "error", "errorType": "bad_data", "error": "exceeded maximum resolution"})
        else:
            points = [[start + number * step, str(number % 7)] for number in range(int((end - start) / step) + 1)]
            values = [*points[:-1], [points[-1][0], "NaN"]]
            series = [
                {"metric": {"user": ODD, "client_id": "c", "job": "kafka"}, "values": values},
                {"metric": {"job": "kafka"}, "values": values},
            ]
            self.answer(200, {"status": "success", "data": {"resultType": "matrix", "result": series}})

    def answer(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def monitoring() -> Iterator[tuple[str, list[Any]]]:
    handler = type("Handler", (Prometheus,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/prefix/", handler.asked  # type: ignore[attr-defined]  # above
        finally:
            server.shutdown()
            thread.join()


def queries(path: Path, url: str, query: str = "rate", **more: Any) -> str:
    given = {
        "url": url, "start": "2026-01-01T00:00:00Z", "end": "2026-01-08T00:00:00Z", "step": 30,
        "labels": {"user": "user", "client-id": "client_id"}, "queries": {"producer_byte_rate": query}, **more,
    }  # fmt: skip
    file = path / "queries.yaml"
    file.write_text(json.dumps({name: value for name, value in given.items() if value is not None}))
    return str(file)


def test_prometheus_is_asked_in_pieces_with_the_token(spark: SparkSession, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("of prometheus\n")
    with monitoring() as (url, asked):
        found = read_usage(spark, Measurements.of(queries(tmp_path, url, token_file=str(token)))).collect()
    # 20,161 points in two pieces, of which the last points are no numbers.
    assert len(asked) == 2
    assert {(path, token) for path, _, token in asked} == {("/prefix/api/v1/query_range", "Bearer of prometheus")}
    assert len(found) == len({row.time for row in found}) == 20_161 - 2
    assert {(row.user, row.client_id, row.metric) for row in found} == {(ODD, "c", "producer_byte_rate")}
    assert min(row.time for row in found).replace(tzinfo=None) == START.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("more", "error", "says"),
    [
        ({"query": "rate("}, ValueError, "refused the query 'rate\\(': parse error: unclosed left parenthesis"),
        ({"query": "away"}, UnavailableError, "Prometheus answers 503"),
        ({"query": "moved"}, UnavailableError, "Prometheus answers 302"),
        ({"query": "SUCCESS: {}"}, UnavailableError, "does not answer in its form"),
        ({"query": 'SUCCESS: {"data": {"resultType": "matrix"}}'}, UnavailableError, "does not answer in its form"),
        (
            {"query": 'SUCCESS: {"data": {"resultType": "matrix", "result": [{"values": [[1, "2"]]}]}}'},
            UnavailableError,
            "does not answer in its form",
        ),
        (
            {"query": 'SUCCESS: {"data": {"resultType": "matrix", "result": [{"metric": {}, "values": [[1, "x"]]}]}}'},
            UnavailableError,
            "does not answer in its form",
        ),
        (
            {"query": 'SUCCESS: {"data": {"resultType": "vector", "result": []}}'},
            ValueError,
            "gives no series over a range",
        ),
        ({"url": "http://127.0.0.1:1"}, UnavailableError, "does not answer: .*refused"),
        ({"url": "file:///etc/passwd"}, ValueError, "url must begin with http"),
        ({"step": 0}, ValueError, "step must be a number of seconds above zero"),
        ({"step": None}, ValueError, "step is missing"),
        ({"end": "2025-01-01T00:00:00Z"}, ValueError, "start must not be after end"),
        ({"labels": {"client": "x"}}, ValueError, "labels: 'client' is not known; there are: user, client-id"),
        ({"queries": {"bytes": "x"}}, ValueError, "queries: 'bytes' is not known"),
        ({"queries": []}, ValueError, "queries must be a map of texts"),
        ({"token_file": "/nowhere"}, ValueError, "No such file"),
        ({"from": "x"}, ValueError, "'from' is not a known member"),
    ],
)
def test_what_stands_in_the_way_of_prometheus(tmp_path: Path, more: Row, error: type[Exception], says: str) -> None:
    with monitoring() as (url, _), pytest.raises(error, match=says):
        list(prometheus.samples(prometheus.read_range_queries(queries(tmp_path, **{"url": url, **more}))))
