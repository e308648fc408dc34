"""Manifests: configs as documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane.client.core.calls import call, drop_none
from confplane.client.core.operations import Family, S, operation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from confplane.client.core.calls import ApiCall, ReadOptions, WriteOptions
    from confplane.client.types import AppliedManifest, ManifestPlan


class Manifests(Family[S]):
    """Documents with configs of a cluster, their plans, and applies."""

    @operation
    def plan(
        self,
        manifest: Mapping[str, Any],
        *,
        atomic: bool = False,
        scope: str | None = None,
        max_deletes: int | None = None,
        **fresh: Unpack[ReadOptions],
    ) -> ApiCall[ManifestPlan]:
        """Read what an apply of a manifest would change.

        Args:
            manifest: The document.
            atomic: All entities in one transaction, or none.
            scope: Delete what is in this scope and not in the document; a type and the beginning of names, such as
                ``topic:orders.``.
            max_deletes: The greatest number of entities to delete; a fifth of the scope by default.
            **fresh: How new the state must be.
        """
        return call(
            "POST",
            f"{self._base}/manifests:plan",
            fresh,
            json=_body(manifest, atomic, scope, max_deletes),
            reads=True,
            repeatable=True,
        )

    @operation
    def apply(
        self,
        manifest: Mapping[str, Any],
        plan_id: str,
        *,
        revision: int | None = None,
        atomic: bool = False,
        scope: str | None = None,
        max_deletes: int | None = None,
        **terms: Unpack[WriteOptions],
    ) -> ApiCall[AppliedManifest]:
        """Apply a plan, or continue to: ``next`` of the answer is None once all entities were sent.

        Args:
            manifest: The document of the plan.
            plan_id: The id of the plan.
            revision: The revision of the plan: a stale plan is answered with the changes since.
            atomic: As of the plan.
            scope: As of the plan.
            max_deletes: As of the plan.
            **terms: The terms of the write.
        """
        body = _body(manifest, atomic, scope, max_deletes)
        body |= drop_none(planId=plan_id, revision=None if revision is None else str(revision))
        return call("POST", f"{self._base}/manifests:apply", terms, json=body, keyed=True)


def _body(manifest: Mapping[str, Any], atomic: bool, scope: str | None, max_deletes: int | None) -> dict[str, Any]:  # noqa: FBT001 - private
    options = drop_none(scope=scope, maxDeletes=max_deletes)
    return {**manifest, "atomic": atomic, "prune": scope is not None, **options}
