"""The place of a cluster's client configs: the znode ``/confplane/layout``, followed.

During a move from one tree to the other each entity may be in either tree. A reader must find each of them at every
moment, so the known layout must never be behind the mirror: the node is read from within the watch's event, ahead of
all reads for later events, and its reply is taken in its place among all replies. After the end of a move the old tree
is read, too, until the mirror has seen the whole move.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from confplane.domain.facets import Tree
from confplane.services.operator_warnings import OperatorWarning
from confplane.services.ports.cluster_states import Place
from confplane.store import znodes
from confplane.store.watched_nodes import WatchedNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confplane.store.session.asyncio_adapter import Reply
    from confplane.store.session.session import Session


class MirrorPosition(Protocol):
    """The revision of the mirror, which must not be ahead of the known layout."""

    @property
    def revision(self) -> int:
        """The revision up to which the mirror is complete."""

    def advance_soon(self) -> None:
        """Bring the revision to this moment."""


class LayoutNode(WatchedNode):
    """A process's copy of one cluster's layout, kept up to date by a watch.

    Args:
        chosen: The layout in the settings, or None.
        mirror: The mirror, which must not be ahead of the layout.
        on_missing: Called where the node is absent: without a node there is no watch on the next change.
    """

    def __init__(
        self, name: str, chosen: Tree | None, mirror: MirrorPosition, *, on_missing: Callable[[], None]
    ) -> None:
        super().__init__(znodes.LAYOUT, on_missing=on_missing)
        self._name = name
        self._chosen = chosen
        self._place = Place(chosen or Tree.CONFIG)
        self._mirror = mirror
        self._until: int | None = None
        self._pending_reads = 0
        self._idle = asyncio.Event()

    @property
    def place(self) -> Place:
        """The place of the client configs as it was followed."""
        if self._until is not None and self._mirror.revision >= self._until:
            self._place, self._until = replace(self._place, source=None), None
        return self._place

    # -- following

    def read(self, session: Session) -> Reply:
        """Read the node, with the watch set. On a new session this comes before any other read."""
        reply = super().read(session)
        self._pending_reads += 1
        self._idle.clear()
        return reply

    async def wait_idle(self) -> None:
        """Wait until no read is in flight."""
        if self._pending_reads:
            await self._idle.wait()

    def _on_reply(self, session: Session, value: Any, error: Exception | None) -> None:
        self._pending_reads -= 1
        if not self._pending_reads:
            self._idle.set()
        super()._on_reply(session, value, error)

    def _update(self, data: bytes | None, stat: Any) -> None:
        before, self._until = self.place, None
        try:
            layout = znodes.decode_layout(data)
        except ValueError as error:
            self._place = replace(before, version=stat.version, defect=str(error))
            return
        if layout is None:
            self._place = Place(self._chosen or Tree.CONFIG, version=stat.version)
            return
        source, moving = layout.source, layout.source is not None
        if not moving and before.settled and (before.source is not None or before.tree is not layout.tree):
            source, self._until = layout.tree.other, stat.mzxid
            self._mirror.advance_soon()
        self._place = Place(layout.tree, source, moving=moving, settled=True, version=stat.version)

    # -- for the mirror

    def order(self, *, loading: bool) -> tuple[Tree, Tree]:
        """Return the trees in the order of reads of a node in both, so that a moved entity is never missed.

        An entity leaves one tree and appears in the other at the same moment. A read after the move takes the
        destination first. A read during the move, as by a load, takes the destination last.
        """
        place = self._place
        first = (place.source or place.tree) if loading else place.tree
        return first, first.other

    # -- for operators

    def warnings(self) -> Iterator[OperatorWarning]:
        """Return the warnings for operators."""
        place = self.place
        if place.defect is not None:
            unread = f"The znode {znodes.LAYOUT} can't be read, so client configs can't be written"
            yield OperatorWarning(unread, f"{unread}: {place.defect}")
        if place.moving:
            yield OperatorWarning(
                f"Client configs are being moved to the layout {place.tree.layout}; they can't be written until"
                f" `confplane layout move --cluster {self._name} --to {place.tree.layout} --apply` has ended"
            )
        elif place.settled and self._chosen not in {None, place.tree}:
            yield OperatorWarning(
                f"Client configs are stored in the layout {place.tree.layout}, which counts, and not in that of the"
                f" setting client_configs_layout; `confplane layout move --cluster {self._name}` moves them"
            )
