"""The documentation of every config key and quota, searched by words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter

from confplane.console.page import PageDep

if TYPE_CHECKING:
    from starlette.responses import Response

router = APIRouter()

_SHOWN: Final = 50
"""Keys on the page; further ones need a narrower search."""
_SECTIONS: Final = ("quota", "topic", "broker", "group", "client-metrics", "producer", "consumer")


@router.get("/console/clusters/{cluster}/definitions")
async def definitions(
    page: PageDep, cluster: str, *, search: str = "", section: str = "", settable: str = "", release: str = ""
) -> Response:
    """The keys of a release of Kafka whose name or description has all words of a search."""
    path = f"/v1/clusters/{cluster}/config-definitions"
    answer = await page.api.get(path, release=release or None)
    words = search.lower().split()
    found = [
        each
        for each in answer["items"]
        if (section in {"", each["section"]}) and (not settable or each["settableOn"]) and _has(each, words)
    ]
    found.sort(
        key=lambda each: (each["name"] != search.strip(), not all(word in each["name"].lower() for word in words))
    )
    values = {
        "cluster": cluster,
        "items": found[:_SHOWN],
        "count": len(found),
        "search": search,
        "section": section,
        "sections": _SECTIONS,
        "settable": bool(settable),
        "release": answer["kafkaVersion"],
        "releases": answer["releases"],
    }
    if page.is_partial:
        return page.partial("definitions_found.html", **values)
    query = {"search": search or None, "entityType": None if section in {"", "quota"} else section}
    return page.render("definitions.html", command=page.command("GET", path, query=query), **values)


def _has(definition: dict[str, Any], words: list[str]) -> bool:
    text = f"{definition['name']} {definition['description'] or ''}".lower()
    return all(word in text for word in words)
