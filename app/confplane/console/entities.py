"""The entities of a cluster: a search by name, type, key and value, page by page."""

import asyncio
from typing import Any, Final, NamedTuple

from fastapi import APIRouter
from starlette.responses import Response

from confplane.console.api import ApiRefusal
from confplane.console.page import ConsolePage, PageDep, redirect
from confplane.console.texts import plain

router = APIRouter()

FACETS: Final = {"client-quotas": "quotas", "client-configs": "configs", "configs": "configs"}
"""The facets, with the member of their answers that has the values."""
_CLIENTS: Final = ("client-quotas", "client-configs")
KINDS: Final = {
    "user": _CLIENTS,
    "user,client-id": _CLIENTS,
    "client-id": _CLIENTS[:1],
    "ip": _CLIENTS[:1],
    "topic": ("configs",),
    "broker": ("configs",),
    "group": ("configs",),
    "client-metrics": ("configs",),
}
"""The types of entities, with the facets that they have."""
_SHOWN: Final = 50
_SEARCHED: Final = 1_000
"""Entities that one step of a search by value reads at most."""
_FORBIDDEN: Final = 403


class EntitySearch(NamedTuple):
    """A search as its URL has it; empty is any. ``facet`` and ``token`` are those of a list that continues."""

    prefix: str = ""
    kind: str = ""
    key: str = ""
    value: str = ""
    facet: str = ""
    token: str = ""
    read: int = 0
    """Entities that were read for a search by value so far."""

    @property
    def facets(self) -> tuple[str, ...]:
        """The facets whose lists are read."""
        return (self.facet,) if self.facet in FACETS else KINDS.get(self.kind, tuple(FACETS))

    @property
    def query(self) -> dict[str, str]:
        """The part of the URL that a person chose."""
        return {name: str(text) for name, text in self._asdict().items() if text and name not in {"token", "read"}}


@router.get("/console/clusters/{cluster}")
async def cluster_page(cluster: str) -> Response:
    """Lead to the entities: people shorten URLs."""
    return redirect(f"/console/clusters/{cluster}/entities")


@router.get("/console/clusters/{cluster}/entities")
async def entities(  # noqa: PLR0913 - one argument a parameter is FastAPI's way
    page: PageDep,
    cluster: str,
    *,
    prefix: str = "",
    kind: str = "",
    key: str = "",
    value: str = "",
    facet: str = "",
    token: str = "",
    read: int = 0,
) -> Response:
    """The first entities that a search selects, or those that follow."""
    search = EntitySearch(prefix.strip(), kind if kind in KINDS else "", key.strip(), value.strip(), facet, token, read)
    try:
        found = await _found(page, cluster, search)
    except ApiRefusal as refused:
        if refused.status != _FORBIDDEN:
            raise
        found = {"rows": [], "more": [], "forbidden": refused.detail, "skipped": [], "read": 0}
    values = {"search": search, "cluster": cluster, "kinds": tuple(KINDS), "facets": FACETS, **found}
    if page.is_partial:
        return page.partial("entity_rows.html" if search.token else "entity_results.html", **values)
    options = (("--type", search.kind), ("--prefix", search.prefix), ("--key", search.key))
    command = page.command(
        "GET",
        f"/v1/clusters/{cluster}/{search.facets[0]}",
        *("get", "--cluster", cluster),
        *(part for option, text in options if text for part in (option, text)),
        query={"prefix": search.prefix or None, "kind": search.kind or None, "key": search.key or None},
    )
    return page.render("entities.html", command=command, **values)


async def _found(page: ConsolePage, cluster: str, search: EntitySearch) -> dict[str, Any]:
    """Return the rows of a search, by entity, and the lists that continue."""
    exact = bool(search.key and search.value)
    pages = await asyncio.gather(
        *(
            page.api.get(
                f"/v1/clusters/{cluster}/{facet}",
                view="full",
                prefix=search.prefix or None,
                kind=search.kind or None,
                key=search.key or None,
                pageSize=_SEARCHED if exact else _SHOWN,
                pageToken=search.token or None,
            )
            for facet in search.facets
        )
    )
    rows: dict[str, dict[str, Any]] = {}
    more = []
    for facet, answer in zip(search.facets, pages, strict=True):
        for item in answer["items"]:
            values = item[FACETS[facet]]
            if exact and plain(values.get(search.key)) != search.value:
                continue
            row = rows.setdefault(item["id"], {"id": item["id"], "values": {}, "updated": "", "refused": False})
            row["values"] |= values
            row["updated"] = max(row["updated"], item["status"]["updatedAt"] or "")
        if answer["nextPageToken"] is not None:
            more.append((facet, answer["nextPageToken"]))
    return {
        "rows": [rows[entity_id] for entity_id in sorted(rows)],
        "more": more,
        "skipped": [path for answer in pages for path in answer["skipped"]],
        "read": search.read + sum(len(answer["items"]) for answer in pages),
        "forbidden": None,
    }


def facets_of(entity_id: str) -> tuple[str, ...]:
    """Return the facets that an entity has by its type; none for something that is not an entity id."""
    return KINDS.get(",".join(part.partition("=")[0] for part in entity_id.split(",")), ())
