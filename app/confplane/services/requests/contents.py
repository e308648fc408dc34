"""The contents of change requests: edits as they were decided, their digest, and what was changed since."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from confplane.domain.changes import stored
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.policies import approval_text
from confplane.domain.texts import rfc3339
from confplane.services.changes.edits import json_of
from confplane.services.changes.stored_draft import is_other_write, restore, store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime
    from uuid import UUID

    from confplane.domain.approvals import Requirement
    from confplane.domain.changes import Node
    from confplane.domain.facets import JsonValue
    from confplane.services.changes.alter import AlterService, Entry
    from confplane.services.changes.callers import Caller
    from confplane.services.changes.edits import Edit, EditResult
    from confplane.services.changes.entity_drafts import EntityDraft
    from confplane.services.changes.stored_draft import Fingerprint
    from confplane.services.cluster_facet import ClusterFacet
    from confplane.services.clusters import Cluster


class RequestContent(NamedTuple):
    """A content that was decided."""

    draft: dict[str, Any]
    """The edits with an effect, as data."""
    entity_ids: tuple[str, ...]
    warnings: tuple[str, ...]
    requirements: dict[str, tuple[Requirement, ...]]
    """The approvals that rules ask for, by entity id."""


async def decide(alter: AlterService, fingerprint: Fingerprint, entries: list[Entry], caller: Caller) -> RequestContent:
    """Decide entries on the present state, as one change.

    Args:
        alter: Decides the edits.
        fingerprint: The cluster's fingerprints of sensitive values.
        entries: The entries, each entity once.
        caller: A caller who needs no grant to alter.

    Raises:
        InvalidRequestError: The entries have no effect.
        ConfplaneError: The change would be refused.
    """
    drafts = [draft for draft in await alter.decide_entries(entries, caller) if draft.diff]
    if not drafts:
        raise InvalidRequestError("The request changes nothing: every key has the given value already")
    draft = await asyncio.to_thread(store, drafts, fingerprint)
    # What rules ask for is no warning here, but the subject of the request.
    asked = {approval_text(each.edit.entity, each.requirements) for each in drafts if each.requirements}
    warnings = dict.fromkeys(text for each in drafts for text in each.warnings if text not in asked)
    entity_ids = tuple(sorted({each.edit.entity.id for each in drafts}))
    return RequestContent(draft, entity_ids, tuple(warnings), requirements_of(drafts))


def requirements_of(decided: Iterable[EntityDraft | EditResult]) -> dict[str, tuple[Requirement, ...]]:
    """Return the approvals that rules ask for, by entity id, each once."""
    found: dict[str, tuple[Requirement, ...]] = {}
    for each in decided:
        if each.requirements:
            entity_id = each.edit.entity.id
            found[entity_id] = tuple(dict.fromkeys((*found.get(entity_id, ()), *each.requirements)))
    return found


async def entries_of(
    cluster: Cluster,
    fingerprint: Fingerprint,
    draft: Mapping[str, Any],
    supplied: Mapping[tuple[str, str], JsonValue],
    *,
    on_versions: bool = True,
) -> list[Entry]:
    """Return the entries of a stored content.

    Args:
        cluster: The cluster.
        fingerprint: The cluster's fingerprints of sensitive values.
        draft: The content.
        supplied: The sensitive values, by entity id and key.
        on_versions: Each is to be decided on its version only, and not on the present one.

    Raises:
        InvalidRequestError: A sensitive value is missing, or is not the one that was decided on.
    """
    edits = await asyncio.to_thread(restore, draft, cluster.facets, supplied, fingerprint)
    entries: dict[str, dict[ClusterFacet, Edit | EditResult]] = {}
    for cluster_facet, edit in edits:
        entries.setdefault(edit.entity.id, {})[cluster_facet] = edit if on_versions else replace(edit, expected=None)
    return list(entries.values())


def digest_of(cluster: str, draft: Mapping[str, Any], apply_at: datetime | None, expires_at: datetime | None) -> str:
    """Return the digest of all that an approval is given for."""
    times = [None if each is None else rfc3339(each) for each in (apply_at, expires_at)]
    text = json.dumps([1, cluster, draft, *times], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def related(reverted: Mapping[str, Any], draft: Mapping[str, Any]) -> bool:
    """Return True if a content changes a key of an applied one."""
    places = [
        {(edit["facet"], edit["entity"], item["key"]) for edit in each["edits"] for item in edit["diff"]}
        for each in (reverted, draft)
    ]
    return not places[0].isdisjoint(places[1])


def partly_warning(reverted: UUID) -> str:
    """Return the warning of a request that gives only some keys of another one their earlier values."""
    return f"Not all keys of the request {reverted} get their earlier values"


def restores(cluster: Cluster, reverted: Mapping[str, Any], draft: Mapping[str, Any]) -> bool:
    """Return True if a content leaves all keys of an applied one as they were before it.

    Args:
        cluster: The cluster, on whose state the content was just decided.
        reverted: The applied content.
        draft: The content.
    """
    after = {
        (edit["facet"], edit["entity"], item["key"]): item["after"] for edit in draft["edits"] for item in edit["diff"]
    }
    for edit in reverted["edits"]:
        cluster_facet, entity = cluster.facets[FacetName(edit["facet"])].placed(), Entity.from_id(edit["entity"])
        now = stored(cluster_facet.get(entity.id))
        for item in edit["diff"]:
            key = item["key"]
            place = (edit["facet"], entity.id, key)
            if item["secret"]:
                if place not in after:
                    return False
                continue
            value = after.get(place, now.get(key))
            # Equal values may be stored as different texts.
            texts = (value, item["before"])
            if value != item["before"] and len({json_of(cluster_facet, entity, key, each) for each in texts}) > 1:
                return False
    return True


def was_restored(cluster: Cluster, draft: Mapping[str, Any]) -> bool:
    """Return True if an entity of a content has the version on which it was decided, by another write.

    A restored ZooKeeper uses versions again, and the id of a plan rests on versions only.
    """
    return any(
        node is not None
        and (node.version, node.czxid) == (edit["version"], edit["czxid"])
        and is_other_write(edit.get("mtime"), node)
        for edit, _, node in _parts(cluster, draft)
    )


def _parts(cluster: Cluster, draft: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], ClusterFacet, Node | None]]:
    """Yield what a content rests on: each facet of an entity, with its znode of now."""
    unchanged = (part for entry in draft.get("document", ()) for part in entry)
    edits = {(edit["facet"], edit["entity"]): edit for edit in (*unchanged, *draft["edits"])}
    for edit in edits.values():
        cluster_facet = cluster.facets[FacetName(edit["facet"])].placed()
        yield edit, cluster_facet, cluster_facet.get(edit["entity"])


def differences(cluster: Cluster, draft: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the entities of a content that were changed since it was decided, without the values of secrets."""
    found = []
    for edit, cluster_facet, node in _parts(cluster, draft):
        version, czxid = (None, None) if node is None else (node.version, node.czxid)
        if (version, czxid) == (edit["version"], edit["czxid"]) and not is_other_write(edit.get("mtime"), node):
            continue
        entity = Entity.from_id(edit["entity"])
        now = cluster_facet.redact(cluster_facet.tree, entity.id, stored(node))
        keys = [
            {"key": item["key"], "decided": item["before"], "now": now.get(item["key"])}
            for item in edit.get("diff", ())
            if not item["secret"] and item["before"] != now.get(item["key"])
        ]
        found.append(
            {
                "entity": entity.id,
                "facet": edit["facet"],
                "revision": None if node is None else str(node.mzxid),
                "keys": keys,
            }
        )
    return tuple(found)
