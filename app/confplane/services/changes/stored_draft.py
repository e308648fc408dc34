"""Stored drafts: the edits of a decided change as plain data that can be kept, for a plan or an approval.

The data have each edit with the difference that it was decided to make, and the version of the znode on which it was
decided. A restored edit is decided again by the rules of its time, on that version only. So the preconditions of the
edit are not kept: equal versions have equal content. A restored ZooKeeper uses versions and transaction numbers again,
so the time of the last write counts as well.

A sensitive value is replaced with its keyed fingerprint (an HMAC under a broker's encoder secret). It has to be
supplied again, and has to be the same value.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import EncoderSecretMissingError, InvalidRequestError, PreconditionFailedError
from confplane.domain.facets import FacetName, full_path
from confplane.domain.ops import Op, OpType
from confplane.domain.texts import clipped
from confplane.services.changes.edits import Edit, Mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.domain.changes import Node
    from confplane.domain.facets import JsonValue
    from confplane.services.changes.entity_drafts import EntityDraft
    from confplane.services.cluster_facet import ClusterFacet

Fingerprint = Callable[["int | None", str, str], "str | None"]
"""A cluster's keyed fingerprints: ``confplane.services.ports.crypto.Cipher.fingerprint``. The first one of a secret
takes a tenth of a second of CPU time: store and restore passwords in a worker thread."""

_FORM: Final = 1
"""The number of the form. A reader refuses any other."""


@dataclass(frozen=True, slots=True)
class ExpectedVersion:
    """The version of a znode on which an edit was decided; None for an absent znode."""

    path: str
    version: int | None
    czxid: int | None
    mtime_ms: int | None = None
    """The time of the last write; None for an absent znode, and if it is not known."""

    def check(self, cluster_facet: ClusterFacet, entity: Entity, node: Node | None) -> None:
        """Refuse any other version, and a znode that was deleted and created again, or moved to the other tree.

        Raises:
            PreconditionFailedError: The entity was changed after the decision.
        """
        now = (None, None) if node is None else (node.version, node.czxid)
        is_same = (full_path(cluster_facet.tree, entity), *now) == (self.path, self.version, self.czxid)
        if not is_same or is_other_write(self.mtime_ms, node):
            raise PreconditionFailedError(
                f"{entity.id} was changed after this change was decided; decide it again on its present state",
                etag=None,
            )


def is_other_write(mtime_ms: int | None, node: Node | None) -> bool:
    """Return True if a znode was last written at another time than the given one; False if either is not known."""
    return mtime_ms is not None and node is not None and node.mtime_ms != mtime_ms


def store(drafts: Sequence[EntityDraft], fingerprint: Fingerprint) -> dict[str, Any]:
    """Return the edits of a draft as data for JSON, without sensitive values.

    Args:
        drafts: The drafts of a change of edits: ``decided`` of its :class:`~confplane.services.changes.edits.Draft`.
        fingerprint: The cluster's fingerprints.

    Raises:
        EncoderSecretMissingError: The fingerprint of a value is not known, so the value could not be compared later.
    """
    return {"form": _FORM, "edits": [_stored(draft, fingerprint) for draft in drafts]}


def to_supply(stored: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the entity id and the key of each value that is needed to restore a content: edits, or a manifest."""
    edits = stored["edits"]
    if "document" in stored:
        edits = [edit for entry in stored["document"] for edit in entry]
    return [(edit["entity"], op["key"]) for edit in edits for op in edit["ops"] if "fingerprint" in op]


def restore(
    stored: Mapping[str, Any],
    facets: Mapping[FacetName, ClusterFacet],
    supplied: Mapping[tuple[str, str], JsonValue],
    fingerprint: Fingerprint,
) -> list[tuple[ClusterFacet, Edit]]:
    """Return the edits of a stored draft, each to be decided on its version only.

    Args:
        stored: The result of :func:`store`.
        facets: The facets of the cluster.
        supplied: The sensitive values, by entity id and key.
        fingerprint: The cluster's fingerprints.

    Raises:
        InvalidRequestError: A sensitive value is missing, or differs from the one that was decided on.
        ValueError: The data have a form of another release.
    """
    if stored["form"] != _FORM:
        raise ValueError(f"The stored draft has the form {stored['form']}, and this release reads {_FORM}")
    return [(facets[FacetName(each["facet"])], _edit(each, supplied, fingerprint)) for each in stored["edits"]]


def _stored(draft: EntityDraft, fingerprint: Fingerprint) -> dict[str, Any]:
    edit, node = draft.edit, draft.node
    return {
        "facet": draft.cluster_facet.name.value,
        "entity": edit.entity.id,
        "mode": edit.mode.value,
        "ops": [stored_op(draft.cluster_facet, edit.entity, op, fingerprint) for op in edit.ops],
        "reverts": [str(each) for each in edit.reverts],
        "path": draft.path,
        "version": draft.expected,
        "czxid": None if node is None else node.czxid,
        "mtime": None if node is None else node.mtime_ms,
        "diff": [asdict(item) for item in draft.diff],
    }


def stored_op(cluster_facet: ClusterFacet, entity: Entity, op: Op, fingerprint: Fingerprint) -> dict[str, Any]:
    """Return an op as data, with a fingerprint in place of a sensitive value.

    Raises:
        EncoderSecretMissingError: The fingerprint of the value is not known.
    """
    shown = {"key": op.key, "op": op.type.name}
    if op.type is OpType.DELETE or op.value is None:
        return {**shown, "value": None}  # in a replacement, null keeps a stored secret
    if not cluster_facet.facet.is_secret(entity, op.key):
        return {**shown, "value": op.value}
    return {**shown, "value": None, "fingerprint": _fingerprint(entity, op.key, op.value, fingerprint)}


def _fingerprint(entity: Entity, key: str, value: JsonValue, fingerprint: Fingerprint) -> str:
    broker = entity.get(EntityType.BROKER)
    text = value if isinstance(value, str) else json.dumps(value)
    made = fingerprint(None if broker is None else int(broker), key, text)
    if made is None:
        raise EncoderSecretMissingError(
            f"{clipped(key)} of {entity.id} is sensitive, and without an encoder secret a change of it can't be stored"
        )
    return made


def _edit(each: Mapping[str, Any], supplied: Mapping[tuple[str, str], JsonValue], fingerprint: Fingerprint) -> Edit:
    entity = Entity.from_id(each["entity"])
    return Edit(
        entity,
        tuple(restored_op(entity, op, supplied, fingerprint) for op in each["ops"]),
        Mode(each["mode"]),
        # Contents of the release before have no time.
        expected=ExpectedVersion(each["path"], each["version"], each["czxid"], each.get("mtime")),
        reverts=tuple(UUID(change_id) for change_id in each["reverts"]),
    )


def restored_op(
    entity: Entity, op: Mapping[str, Any], supplied: Mapping[tuple[str, str], JsonValue], fingerprint: Fingerprint
) -> Op:
    """Return an op of :func:`stored_op`, with its sensitive value as it is supplied.

    Raises:
        InvalidRequestError: The value is missing, or differs from the one that was decided on.
    """
    key, value = op["key"], op["value"]
    if "fingerprint" in op:
        value = supplied.get((entity.id, key))
        if value is None:
            raise InvalidRequestError(f"The value of {clipped(key)} of {entity.id} is not stored; supply it again")
        if not hmac.compare_digest(_fingerprint(entity, key, value, fingerprint), op["fingerprint"]):
            raise InvalidRequestError(
                f"The value of {clipped(key)} of {entity.id} is not the one that this change was decided with"
            )
    return Op(key, OpType[op["op"]], value)
