"""Manifests: configs as documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confplane.client.core.calls import call, drop_none
from confplane.client.core.operations import Family, S, operation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Unpack

    from confplane.client.core.calls import ApiCall, PlanReadOptions, ReadOptions, WriteOptions
    from confplane.client.types import AppliedManifest, ExportedManifest, ManifestPlan


_LASTS_S: Final = 60.0
"""Seconds after which the service has answered a plan or an apply."""


class Manifests(Family[S]):
    """Documents with configs of a cluster, their plans, and applies."""

    @operation
    def plan(
        self,
        manifest: Mapping[str, Any],
        *,
        atomic: bool = False,
        prune: bool = False,
        merge: bool = False,
        scope: str | None = None,
        max_deletes: int | None = None,
        force: Sequence[tuple[str, str]] = (),
        **terms: Unpack[PlanReadOptions],
    ) -> ApiCall[ManifestPlan]:
        """Read what an apply of a manifest would change.

        Args:
            manifest: The document.
            atomic: All entities in one transaction, or none.
            prune: Delete what the owner of the document has and the document does not name.
            merge: Keep the keys that the document does not name.
            scope: Delete what is in this scope and not in the document; a type and the beginning of names, such as
                ``topic:orders.``. With an owner, only keys of the owner are deleted.
            max_deletes: The greatest number of entities to delete; a fifth of the owner's, or of the scope by default.
            force: Keys that the owner takes over from another one, each with the id of its entity before it.
            **terms: How new the state must be, and the reason to write past the rules.
        """
        return call(
            "POST",
            f"{self._base}/manifests:plan",
            terms,
            json={**manifest, **_options(atomic, prune, merge, scope, max_deletes, force)},
            reads=True,
            repeatable=True,
            lasts_s=_LASTS_S,
        )

    @operation
    def apply(  # noqa: PLR0913 - the options of the API
        self,
        manifest: Mapping[str, Any],
        plan_id: str,
        *,
        revision: int | None = None,
        atomic: bool = False,
        prune: bool = False,
        merge: bool = False,
        scope: str | None = None,
        max_deletes: int | None = None,
        force: Sequence[tuple[str, str]] = (),
        **terms: Unpack[WriteOptions],
    ) -> ApiCall[AppliedManifest]:
        """Apply a plan, or continue to: ``next`` of the answer is None once all entities were sent.

        Args:
            manifest: The document of the plan.
            plan_id: The id of the plan.
            revision: The revision of the plan: a stale plan is answered with the changes since.
            atomic: As of the plan.
            prune: As of the plan.
            merge: As of the plan.
            scope: As of the plan.
            max_deletes: As of the plan.
            force: As of the plan.
            **terms: The terms of the write.
        """
        body = {**manifest, **_options(atomic, prune, merge, scope, max_deletes, force)}
        body |= drop_none(planId=plan_id, revision=None if revision is None else str(revision))
        return call("POST", f"{self._base}/manifests:apply", terms, json=body, keyed=True, lasts_s=_LASTS_S)

    @operation
    def export(  # noqa: PLR0913 - the filters of the API
        self,
        *,
        user: str | None = None,
        client_id: str | None = None,
        ip: str | None = None,
        topic: str | None = None,
        broker: str | None = None,
        group: str | None = None,
        client_metrics: str | None = None,
        key: str | None = None,
        kind: str | None = None,
        prefix: str | None = None,
        owner: str | None = None,
        **fresh: Unpack[ReadOptions],
    ) -> ApiCall[ExportedManifest]:
        """Read the configs of the cluster as a manifest; all of it is in memory.

        Args:
            user: Only this user and its client-ids; ``""`` is the default user.
            client_id: Only this client-id; ``""`` is the default client-id.
            ip: Only this ip; ``""`` is the default ip.
            topic: Only this topic.
            broker: Only this broker; ``""`` is the default of all brokers.
            group: Only this group.
            client_metrics: Only this subscription to client metrics.
            key: Only entities that set this key.
            kind: Only entities of exactly these types, such as ``user,client-id``.
            prefix: Only entities whose name begins so; for a pair, the name of the user.
            owner: Only the keys of this owner, as a manifest of its own.
            **fresh: How new the state must be.
        """
        filters = {"user": user, "ip": ip, "topic": topic, "broker": broker, "group": group, "key": key, "kind": kind}
        filters |= {"client-id": client_id, "client-metrics": client_metrics, "prefix": prefix, "owner": owner}
        return call("GET", f"{self._base}/manifests:export", fresh, params=filters)


def _options(
    atomic: bool,  # noqa: FBT001 - private
    prune: bool,  # noqa: FBT001 - private
    merge: bool,  # noqa: FBT001 - private
    scope: str | None,
    max_deletes: int | None,
    force: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    given = drop_none(scope=scope, maxDeletes=max_deletes, merge=merge or None)  # earlier releases have no merge
    if force:
        given["force"] = [{"id": entity_id, "key": key} for entity_id, key in force]
    return {"atomic": atomic, "prune": prune or scope is not None, **given}
