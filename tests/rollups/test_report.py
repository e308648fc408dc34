"""The report: one page without scripts or links elsewhere, with pictures, whatever names a cluster has."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from uuid_utils.compat import uuid7

from confplane.audit.rollup_runs import RollupRuns
from confplane.domain.rollups import ROLLUPS
from confplane.rollups import cells, charts, report
from confplane.rollups.cells import Links
from confplane.rollups.jobs import JOBS
from confplane.rollups.report import NotableRows
from confplane.rollups.summaries import summary
from tests.support.commands import Commands
from tests.support.pages import Page

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from uuid import UUID

    from tests.support import servers

ODD = "<script>alert('1')</script>\"&amp; 🐘"
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)

ROWS: dict[str, list[dict[str, Any]]] = {
    "activity": [
        {
            "day": f"2026-05-{day:02}", "principal": f"User:{ODD if day % 2 else day % 5}", "kind": "change",
            "entity_type": "user", "config_key": ODD if day % 3 else "", "error_code": 0 if day % 4 else 44,
            "team": ODD if day % 2 else "payments", "committed_keys": 10 * day, "rejected_keys": day % 4,
            "open_keys": day % 2, "reverted_keys": day % 3,
        }
        for day in range(1, 31)
    ],
    "compatibility": [
        {
            "entity_id": f"user=a{number}", "software_name": ODD, "software_version": str(number % 20),
            "supported_configs": ["acks", ODD], "common_configs": ["acks"] if number % 2 else [],
            "first_seen": NOW.isoformat(), "last_seen": NOW.isoformat(), "instances": number % 3,
            "applied_revision": number if number % 3 else None, "refused_configs": [ODD] if number % 3 == 2 else [],
        }
        for number in range(100)
    ],
    "drift": [
        {
            "entity_type": "topic", "config_key": ODD, "rank": rank, "state": "value", "value": ODD, "fingerprint": None,
            "entities": 100 // rank, "own": 1, "total": 183, "examples": [] if rank == 1 else ["topic=a", ODD],
            "topics_as_of": None,
        }
        for rank in (1, 2, 3)
    ],
    "impact": [
        {
            "facet": "client-quotas", "default_id": f"user={ODD}{number},client-id", "config_key": "producer_byte_rate",
            "value": None, "affected": number, "overridden": 30 - number, "unsupported": 0, "examples": [ODD],
        }
        for number in range(30)
    ],
    "quotas": [
        {
            "config_key": "producer_byte_rate", "entity_id": entity, "value": value, "level": level, "source": ODD,
            "budget": ODD, "clients": 1 if entity else 3, "unlimited": int(level is None), "unreadable": 0, "budgets": 1,
            "capacity": 1e6, "share": None if value is None else value / 1e6,
        }
        for entity, value, level in (("", 1_250_000.5, None), (ODD, 1e6, 3), ("user=b", 250_000.5, 8), ("user=c", None, None))
    ],
    "integrity": [
        {
            "tree": "/config", "entity_id": ODD, "kind": kind, "config_key": ODD, "trail_revision": 1, "change_id": None,
            "expected": ODD, "found": None, "trail_version": 1, "version": None, "znode_revision": 2, "pending": False,
        }
        for kind in ("content", "content", "gap")
    ],
    "compare": [
        {
            "entity_id": f"topic={ODD}{number}", "config_key": ODD, "kind": "differs", "value": ODD, "fingerprint": None,
            "other_value": None, "other_fingerprint": None, "same_effective": number % 2 == 0, "other": ODD,
        }
        for number in range(3)
    ],
    "usage": [
        {
            "config_key": "producer_byte_rate", "budget": budget, "state": state, "quota": 1e6, "level": level,
            "source": ODD, "clients": 1, "samples": 10, "mean": 1.5, "p95": 2.0, "peak": 1e6,
            "throttled_share": share, "capacity": 5e5, "share": 2.0, "proposed": None, "proposal": ODD,
            "default_proposal": ODD if share else None,
        }
        for budget, state, level, share in (("", "total", None, None), (ODD, "throttled", 3, 0.25), ("user=b", "distant", 3, 0.0))
    ],
}  # fmt: skip


def made(rows: dict[str, list[dict[str, Any]]], base: str | None = None) -> str:
    results = [
        report.RollupResult(name, f"What of {ODD}?", iter(rows[name]), NOW, "019a", len(rows[name]))
        if name in rows
        else report.RollupResult(name, "Why?")
        for name in JOBS
    ]
    return report.page(ODD, [report.section(each, Links(base, ODD)) for each in results], made=NOW)


def test_rows_here_have_the_columns_of_the_jobs() -> None:
    assert {name: list(rows[0]) for name, rows in ROWS.items()} == {
        name: job.output.names for name, job in JOBS.items()
    }


def test_a_page_has_a_section_and_pictures_of_every_rollup_and_needs_nothing_from_elsewhere() -> None:
    page = Page(made(ROWS))
    assert [attributes["id"] for tag, attributes in page.tags if tag == "h2"] == list(JOBS)
    images = [attributes["src"] or "" for tag, attributes in page.tags if tag == "img"]
    assert len(images) >= 9
    for image in images:
        assert image.startswith("data:image/svg+xml;base64,")
        drawn = base64.b64decode(image.partition(",")[2]).decode()
        assert drawn.startswith("<svg")
        assert "<script" not in drawn
        assert "NaN" not in drawn
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.tags}
    targets = [value for _, attributes in page.tags for name, value in attributes.items() if name in {"href", "src"}]
    assert all(target and re.match(r"#|data:image/svg\+xml;", target) for target in targets)


def test_a_page_begins_with_a_line_for_each_rollup_integrity_first() -> None:
    def lines(rows: dict[str, list[dict[str, Any]]]) -> list[tuple[str, str]]:
        begin = made(rows).partition("<nav>")[2].partition("</nav>")[0]
        return [(kind, re.sub("<.*?>", "", text)) for kind, text in re.findall(r'<li class="(\w+)">(.*?)</li>', begin)]

    found = lines(ROWS)
    assert found[0] == ("bad", "Integrity: 3 mismatches, as of 2026-06-01 12:00 UTC")
    assert ("plain", "Usage: 3 rows, as of 2026-06-01 12:00 UTC") in found
    assert len(found) == len(JOBS)
    assert lines({"integrity": []})[:2] == [
        ("good", "Integrity: no mismatch, as of 2026-06-01 12:00 UTC"),
        ("plain", "Compatibility: not run yet"),
    ]


def test_a_line_tells_what_may_go_away_what_is_old_and_a_last_run_that_failed() -> None:
    def line(name: str = "integrity", as_of: datetime | None = NOW, **given: Any) -> tuple[str, str]:
        found = report.RollupResult(name, "Why?", as_of=as_of, **given)
        return found.status_class, found.headline

    as_of = "as of 2026-06-01 12:00 UTC"
    assert line(count=2, pending=2) == ("plain", f"2 mismatches, 2 of which may go away, {as_of}")
    assert line(count=2, pending=1) == ("bad", f"2 mismatches, 1 of which may go away, {as_of}")
    assert line(age=timedelta(hours=47)) == ("good", f"no mismatch, {as_of}")
    assert line(age=timedelta(days=2)) == ("plain", f"no mismatch, {as_of}; 2 days old")
    assert line("drift", age=timedelta(days=9), failure="it failed") == (
        "bad",
        f"0 rows, {as_of}; 9 days old; it failed",
    )
    assert line("drift", None, failure="it failed") == ("bad", "not run yet; it failed")


def test_the_report_of_runs_that_failed_or_are_gone(migrated: servers.Database, tmp_path: Path) -> None:
    dsn = migrated.service_dsn
    runs = RollupRuns(dsn, "default")

    def begun(job: str) -> UUID:
        runs.begin(
            made := uuid7(), job, as_of=datetime.now(UTC), position={}, previous=None, principal="User:a@cli"
        )  # fmt: skip
        return made

    for job in ("drift", "quotas"):
        runs.complete(begun(job))
    runs.fail(begun("drift"), "Postgres was away")
    begun("impact")
    commands = Commands(tmp_path, connect="127.0.0.1:1", dsn=dsn)
    (tmp_path / "page.html").write_text("before")
    (tmp_path / "before").hardlink_to(tmp_path / "page.html")
    said = commands.run_here("rollups", "report", "--output", str(tmp_path / "page.html"))
    assert said.code == 0, said.err
    assert (tmp_path / "before").read_text() == "before"  # the page is replaced, not overwritten in place
    failed = commands.run_here("rollups", "report", "--output", str(tmp_path / "no" / "page.html"))
    assert (failed.code, failed.err) == (1, f"Not written: {tmp_path}/no/page.html: No such file or directory\n")
    begin = (tmp_path / "page.html").read_text().partition("<nav>")[2].partition("</nav>")[0]
    lines = {
        re.sub("<.*?>", "", name): (kind, re.sub(r"\d\d\d\d-\d\d-\d\d \d\d:\d\d", "TIME", text))
        for kind, name, text in re.findall(r'<li class="(\w+)">(.*?</a>): (.*?)</li>', begin)
    }
    assert lines["Drift"] == ("bad", "0 rows, as of TIME UTC; the run of TIME UTC failed: Postgres was away")
    assert lines["Impact"] == (
        "bad", "not run yet; the run of TIME UTC failed: its process ended before it was done"
    )  # fmt: skip
    assert lines["Quotas"] == ("plain", "0 rows, as of TIME UTC")


def test_odd_names_are_texts() -> None:
    page = Page(made(ROWS))
    assert f"Rollups of {ODD}" in page.texts
    assert ODD in page.texts
    assert not [tag for tag, _ in page.tags if tag == "script"]
    assert "<script" not in made(ROWS)


def test_of_many_rows_those_that_say_most_are_shown_and_all_are_counted() -> None:
    rows = {
        "activity": [{**ROWS["activity"][0], "day": f"2026-05-{day:02}", "rejected_keys": day} for day in range(1, 31)]
    }
    text = made(rows)
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("tr") == report.ROWS + 1
    assert any(text.startswith("Changed keys: 300; refused: 465; without an outcome yet: 30.") for text in page.texts)
    assert any(text.startswith(f"{report.ROWS} of 30 rows: those with the most keys") for text in page.texts)
    assert re.findall(r"<td>(2026-05-\d\d)</td>", text) == [f"2026-05-{day:02}" for day in range(30, 5, -1)]


def listed(name: str, rows: list[dict[str, Any]], most: int = 3) -> list[Mapping[str, Any]]:
    notable = NotableRows(name, most)
    assert list(notable.passing(iter(rows))) == rows
    return list(notable.rows())


def test_rows_that_say_most_of_each_rollup() -> None:
    mismatches = [
        {**ROWS["integrity"][0], "kind": kind, "pending": pending, "entity_id": str(number)}
        for number, (kind, pending) in enumerate(
            [
                ("rewound", True),
                ("gap", False),
                ("gap", False),
                ("content", True),
                ("content", False),
                ("rewound", False),
            ]
        )
    ]
    assert [row["entity_id"] for row in listed("integrity", mismatches)] == ["5", "4", "1"]
    clients = [{**ROWS["compatibility"][0], "common_configs": ["acks"] * (number % 5)} for number in range(20)]
    assert [len(row["common_configs"]) for row in listed("compatibility", clients, 6)] == [0, 0, 0, 0, 1, 1]
    drift = [
        {**ROWS["drift"][0], "rank": rank, "entities": count, "total": 90} for rank, count in ((1, 60), (2, 29), (3, 1))
    ]
    assert [row["rank"] for row in listed("drift", drift)] == [3, 2, 1]
    defaults = listed("impact", ROWS["impact"])
    assert [row["affected"] for row in defaults] == [29, 28, 27]
    sides = [{**ROWS["compare"][0], "same_effective": same} for same in (True, None, False)]
    assert [row["same_effective"] for row in listed("compare", sides, 2)] == [None, False]
    # Values of two quotas are in different units: each has its share of the rows.
    quotas = [
        {**ROWS["quotas"][1], "config_key": key, "entity_id": entity, "value": value}
        for key in ("request_percentage", "producer_byte_rate")
        for entity, value in (("", 9.0), ("user=a", None), ("user=b", 1.0), ("user=c", 5.0))
    ]
    assert [(row["config_key"], row["entity_id"]) for row in listed("quotas", quotas, 5)] == [
        ("producer_byte_rate", ""), ("producer_byte_rate", "user=c"),
        ("request_percentage", ""), ("request_percentage", "user=c"),
    ]  # fmt: skip
    used = [
        {**ROWS["usage"][1], "budget": budget, "throttled_share": share}
        for budget, share in (("a", None), ("b", 0.0), ("c", 0.5), ("", None))
    ]
    assert [row["budget"] for row in listed("usage", used)] == ["", "c", "b"]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("producer_byte_rate", 0.0, "0 B/s"),
        ("producer_byte_rate", 999.0, "999 B/s"),
        ("consumer_byte_rate", 1_250_000.5, "1.25 MB/s"),
        ("consumer_byte_rate", 12_500_000_000, "12.5 GB/s"),
        ("producer_byte_rate", 9.22e18, "9,220,000 TB/s"),
        ("request_percentage", 250.0, "250 % of a thread"),
        ("controller_mutation_rate", 0.125, "0.12 partitions/s"),
        ("a_key_of_later", 1234.5, "1,234"),
    ],
)
def test_quotas_have_units(key: str, value: float, says: str) -> None:
    assert cells.amount(key, value) == says


def test_cells_are_in_words_that_people_know() -> None:
    text = made(ROWS)
    texts = re.findall(r"<td.*?>(.*?)</td>", text)
    assert {"250 kB/s", "25 %", "125 %", "user", "any client-id", "POLICY_VIOLATION"} <= set(texts)
    facts = [text for text in Page(text).texts if text.startswith("producer_byte_rate: ")]
    assert facts == [
        "producer_byte_rate: 1.25 MB/s promised (125 % of a broker's 1 MB/s) to 2 of 3 registered clients; 1 unlimited.",
        "producer_byte_rate: 1 MB/s promised, 200 % of a broker's 500 kB/s; 1 MB/s used at the peak.",
    ]
    assert (cells.error_name(44), cells.error_name(41)) == ("POLICY_VIOLATION", "41")


def test_links_lead_to_the_api_and_nowhere_else() -> None:
    base = "https://confplane.example.com/"
    rows = {**ROWS, "integrity": [{**ROWS["integrity"][0], "change_id": "019a"}]}
    links = [attributes["href"] for tag, attributes in Page(made(rows, base)).tags if tag == "a"]
    cluster = f"{base}v1/clusters/{quote(ODD, safe='')}"
    odd = quote(ODD, safe="")
    found = {(link or "").removeprefix(cluster) for link in links if link and not link.startswith("#")}
    assert all(link and link.startswith(("#", cluster + "/")) for link in links)
    assert {f"/rollups/{name}" for name in JOBS} <= found
    assert {
        f"/audit?entity={odd}", "/audit/019a", f"/client-quotas/{odd}", "/client-quotas/user=b/effective",
        "/client-configs/user=a0/effective", f"/client-quotas/user={odd}29,client-id",
    } <= found  # fmt: skip


def test_axes_do_not_mix_clients_and_brokers() -> None:
    rows = [
        {**row, "facet": facet} for row in ROWS["impact"] for facet in ("client-quotas", "client-configs", "configs")
    ]
    titles = [picture.title for picture in summary("impact", iter(rows)).pictures]
    assert titles == ["Reach of the defaults of clients", "Reach of the defaults of brokers"]
    both = [{**row, "entity_type": kind} for row in ROWS["drift"] for kind in ("topic", "broker")]
    assert [picture.title for picture in summary("drift", iter(both)).pictures] == [
        "Brokers that deviate", "Topics that deviate",
    ]  # fmt: skip


def test_the_summary_of_drift_says_that_the_list_of_topics_was_old() -> None:
    [fact] = summary("drift", iter(ROWS["drift"])).facts
    listed = [{**row, "topics_as_of": NOW.isoformat()} for row in ROWS["drift"]]
    assert summary("drift", iter(listed)).facts == (
        fact,
        f"Topics are those of {NOW.isoformat()}: the list of all topics was more than an hour old.",
    )


def test_pictures_are_files_on_request() -> None:
    drawn = charts.png(summary("integrity", iter(ROWS["integrity"])).pictures[0])
    assert drawn.startswith(b"\x89PNG\r\n")
    assert int.from_bytes(drawn[16:20]) > 2 * 300


def test_what_was_never_run_says_how_and_what_found_nothing_says_so() -> None:
    page = Page(made({"integrity": []}))
    told = [text for text in page.texts if text.startswith("Not run yet")]
    assert told == [f"Not run yet: {ROLLUPS[name].command}" for name in JOBS if name != "integrity"]
    assert "Not run yet: confplane rollups run compare --with CLUSTER|TIME" in told
    assert any("there is no mismatch" in text for text in page.texts)
    empty = Page(made({name: [] for name in JOBS}))
    tags = [tag for tag, _ in empty.tags]
    assert tags.count("h2") == len(JOBS)
    assert "img" not in tags  # of nothing there is no chart
    assert "No client is registered." in empty.texts
    assert f"{ROLLUPS['quotas'].scope}." in empty.texts


def test_clients_whose_quota_is_not_a_number_are_promised_nothing() -> None:
    total, client, *_ = ROWS["quotas"]
    rows = [{**total, "unreadable": 1, "unlimited": 1}, {**client, "unreadable": 1, "value": None}]
    found = summary("quotas", iter(rows))
    assert "to 1 of 3 registered clients; 1 unlimited; 1 with a stored quota that is not a number." in found.facts[-1]
    assert [each["part"] for each in found.pictures[0].chart.data.values] == ["not a number"]


def test_one_of_anything_is_told_as_one() -> None:
    one = {name: rows[:1] for name, rows in ROWS.items()}
    texts = [text.strip() for text in Page(made(one)).texts]
    # A number before a noun would need the singular.
    assert not [text for text in texts if re.search(r"\b(The|All|is|of) 1 \w+s\b|^1 \w+s\b", text)]


def test_texts_of_charts_are_legible_on_a_phone() -> None:
    phone = 320
    """Pixels that a page of 400 leaves to a picture."""
    for name, rows in ROWS.items():
        for picture in summary(name, iter(rows)).pictures:
            drawn = charts.svg(picture)
            width = float(re.search(r'<svg[^>]* width="([\d.]+)"', drawn)[1])  # type: ignore[index]  # drawn above
            sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)px"', drawn)]
            assert min(sizes) * min(1, phone / width) >= 10, picture.title


def test_mismatches_say_what_to_do() -> None:
    page = Page(made(ROWS))
    kinds = ROLLUPS["integrity"].kinds
    assert [text for text in page.texts if text.partition(": ")[0] in kinds and ": " in text] == [
        f"{kind}: {kinds[kind]}." for kind in ("content", "gap")
    ]
    assert "confplane adopt-store" in kinds["rewound"]


def test_bars_are_the_largest_ones() -> None:
    found = summary("impact", iter(ROWS["impact"])).pictures[0].chart.to_dict()
    [rows] = found["datasets"].values()
    shown = {each["name"] for each in rows}
    assert len(shown) == charts.MOST
    assert f"producer_byte_rate of user={ODD}29,client-id" in shown
    assert f"producer_byte_rate of user={ODD}0,client-id" not in shown
