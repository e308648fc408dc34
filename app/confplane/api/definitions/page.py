"""The config definitions as a page to read: KIP-21's table, usable without scripts and without a network.

The search is a form that works by itself; the script answers it while a person types, and makes columns sortable. The
page's policy allows exactly this style and this script, by their hashes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import orjson

from confplane.api.definitions.rows import TITLES
from confplane.domain.releases import releases
from confplane.pages import fragment, inline, render, source_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

_STYLE: Final = inline("console.css", "definitions.css")
_SCRIPT: Final = inline("definitions.js")
_IMPORTANCE: Final = {"HIGH": "1", "MEDIUM": "2", "LOW": "3"}
_ENTITY_TYPES: Final = {
    "": "everything",
    "topic": "topics",
    "broker": "brokers",
    "client": "producers and consumers",
    "user": "users",
    "client-id": "client-ids",
    "ip": "ips",
    "group": "groups",
    "client-metrics": "client metrics",
}
_DYNAMIC: Final = {"": "dynamic or not", "true": "dynamic", "false": "not dynamic"}
_LARGEST: Final = {str(2**31 - 1): "the largest INT", str(2**63 - 1): "the largest LONG"}
_PART: Final = re.compile(r"(?<=[,:;])(?=[^\s.,:;])|(?<=\.)(?=[A-Za-z<])|(?<=_)(?=[a-z])|(?<=[a-z])(?=[A-Z][a-z])")
"""The places where a value may break: between words of a name and elements of a list, never within a number."""

HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": (
        f"default-src 'none'; style-src {source_hash(_STYLE)}; script-src {source_hash(_SCRIPT)}; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
}
"""The headers of the page."""


def page(
    rows: Sequence[dict[str, Any]],
    *,
    cluster: str,
    release: str,
    entity_type: str | None,
    search: str,
    dynamic: bool | None,
) -> bytes:
    """Return the page with the rows of :func:`.rows.select`, and the filters that selected them."""
    sections = groupby(rows, key=lambda row: str(row["section"]))
    return render(
        "definitions.html",
        style=_STYLE,
        script=_SCRIPT,
        cluster=cluster,
        release=release,
        releases={each: f"Kafka {each}" for each in releases()},
        search=search,
        entity_type=entity_type or "",
        entity_types=_ENTITY_TYPES,
        dynamic="" if dynamic is None else str(dynamic).lower(),
        dynamic_or_not=_DYNAMIC,
        count=len(rows),
        sections=[
            (section, TITLES[section], [_row(orjson.dumps(row)) for row in found]) for section, found in sections
        ],
    ).encode()


@lru_cache(maxsize=2048)
def _row(row: bytes) -> Markup:
    """Return a row of the table. Searches select from the same rows repeatedly, so each row is rendered once."""
    found = orjson.loads(row)
    return fragment("definition.html", row=found, importance=_IMPORTANCE, parts=_PART.split, largest=_LARGEST)
