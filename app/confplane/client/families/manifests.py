"""Manifests: configs as documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane.client.core.calls import call, drop_none
from confplane.client.core.operations import Family, S, operation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from confplane.client.core.calls import ApiCall, ReadOptions
    from confplane.client.types import ManifestPlan


class Manifests(Family[S]):
    """Documents with configs of a cluster, and their plans."""

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


def _body(manifest: Mapping[str, Any], atomic: bool, scope: str | None, max_deletes: int | None) -> dict[str, Any]:  # noqa: FBT001 - private
    options = drop_none(scope=scope, maxDeletes=max_deletes)
    return {**manifest, "atomic": atomic, "prune": scope is not None, **options}
