"""The pages of rollups: the catalogue, and each result as bars and a table with the same numbers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.rollups import ROLLUPS
from tests.console.visitor import Visitor, text_of
from tests.support.published import publish, publish_all, row_of
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.console.api import Api
    from tests.support.servers import Database
    from tests.support.service import Service

HOME = "/console/clusters/default/rollups"
MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module", autouse=True)
def _published(service: Service, module_database: Database) -> None:
    """A result of each rollup, and larger ones of some, in the schema that the service's fixture made."""
    assert service.running
    dsn = module_database.service_dsn
    publish_all(dsn)
    quotas = [_quota("producer_byte_rate", f"user=team-{number:02d}", number * 1048576) for number in range(1, 26)]
    quotas += [_quota("producer_byte_rate", "", 340787200), _quota("producer_byte_rate", "user=free", None)]
    publish(dsn, "quotas", [*quotas, _quota("request_percentage", "user=team-01", 50)])
    publish(dsn, "activity", [_activity(day, key, 3) for day in ("2026-01-30", "2026-01-31") for key in ("a", "b")])
    kinds = ("content", "content", "version")
    publish(dsn, "integrity", [_mismatch(kind, number) for number, kind in enumerate(kinds)])


def _quota(key: str, entity: str, value: float | None) -> dict[str, Any]:
    share = None if value is None else value / 125000000
    return row_of(
        "quotas", config_key=key, entity_id=entity, value=value, clients=1, share=share, source=entity or None
    )


def _activity(day: str, key: str, keys: int) -> dict[str, Any]:
    counts = dict.fromkeys(("rejected_keys", "open_keys", "reverted_keys"), 0)
    return row_of("activity", day=day, principal="User:a", kind="change", entity_type="user", config_key=key,
                error_code=0, committed_keys=keys, team=MARKUP, **counts)  # fmt: skip


def _mismatch(kind: str, number: int) -> dict[str, Any]:
    return row_of("integrity", tree="/config", entity_id=f"user=m-{number}", kind=kind, config_key="a",
                trail_revision=number, pending=False)  # fmt: skip


def bars(page: str) -> list[tuple[str, float, str]]:
    """Return the bars of a chart: label, length and number."""
    found = re.findall(
        r'<tr><th scope="row">([^<]*)</th><td aria-hidden="true"><svg[^>]*><rect width="([\d.]+)"[^>]*/></svg></td>'
        r'<td class="num">([^<]*)</td>',
        page,
    )
    return [(label, float(width), text) for label, width, text in found]


def test_the_catalogue_leads_to_every_result(visitor: Visitor) -> None:
    page = visitor.page(HOME)
    for name, rollup in ROLLUPS.items():
        assert f'href="{HOME}/{name}"' in page
        shown = text_of(visitor.page(f"{HOME}/{name}"))
        assert rollup.question in shown
        assert all(each.member in shown for each in rollup.columns)
    assert visitor.get(f"{HOME}/none").status_code == 404


def test_the_largest_quotas_are_bars_with_the_numbers_of_the_table(visitor: Visitor) -> None:
    page = visitor.page(f"{HOME}/quotas")
    found = bars(page)
    assert [found[0], found[-1]] == [("user team-25", 100, "25 MiB/s"), ("user team-06", 24, "6 MiB/s")]
    assert len(found) == 20
    table = text_of(page.partition("<h2>Rows</h2>")[2])
    assert all(text in table for _, _, text in found)
    assert "all together 325 MiB/s" in table, "the row of the whole cluster is in the table only"
    assert 'href="/console/clusters/default/entities/user=team-25"' in page
    assert bars(visitor.page(f"{HOME}/quotas?column=share"))[0] == ("user team-25", 100, "21.0%")
    other = visitor.page(f"{HOME}/quotas?quota=request_percentage")
    assert bars(other) == [("user team-01", 100, "50 %")]
    assert "team-02" not in other


def test_changes_are_summed_per_day_and_mismatches_per_kind(visitor: Visitor) -> None:
    page = visitor.page(f"{HOME}/activity")
    assert bars(page) == [("2026-01-30", 100, "6"), ("2026-01-31", 100, "6")]
    assert MARKUP not in page
    assert bars(visitor.page(f"{HOME}/activity?filter=day%20%3E%3D%202026-01-31")) == [("2026-01-31", 100, "6")]
    assert [text for _, _, text in bars(visitor.page(f"{HOME}/activity?column=openKeys"))] == ["0", "0"]
    assert bars(visitor.page(f"{HOME}/integrity")) == [("content", 100, "2"), ("version", 50, "1")]


def test_conditions_are_those_of_the_api(visitor: Visitor) -> None:
    page = visitor.page(f"{HOME}/quotas?filter=value%20%3E%3D%2026214400")
    assert "user team-25" in text_of(page)
    assert "user team-24" not in text_of(page)
    refused = visitor.get(f"{HOME}/quotas?filter=nothing%20%3E%201")
    assert refused.status_code == 400
    assert 'role="alert"' in refused.text


def test_who_may_not_see_a_result_is_told_so(service: Service, api: Api) -> None:
    token = api.token("User:rollups-reader", {"operation": "DESCRIBE_CONFIGS", "resourceType": "user",
                                                   "name": "team-02", "patternType": "literal"})  # fmt: skip
    with Visitor(service, token) as reader:
        wait_for(lambda: reader.sign_in().status_code == 303)
        wait_for(lambda: bars(reader.get(f"{HOME}/quotas").text) == [("user team-02", 100, "2 MiB/s")])
        refused = reader.get(f"{HOME}/impact")
        assert refused.status_code == 403
        assert 'role="alert"' in refused.text
