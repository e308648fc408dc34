"""Questions of ``confplane doctor`` to a cluster's ZooKeeper, besides the warnings that each process has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import NoAuthError

from confplane.domain.entities import Entity, EntityType
from confplane.store import znodes
from confplane.store.session.reads import FORBIDDEN, ReadWindow, SizeEstimate
from confplane.store.session.session_manager import zookeeper_calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.domain.facets import Tree
    from confplane.store.mirror.follower import MirrorFollower
    from confplane.store.session.session import Operation
    from confplane.store.session.session_manager import SessionManager

_REFUSED: Final[Operation] = ("check", "/config", 0x7FFFFFFF)
"""A check that never holds: ZooKeeper applies no operation of a transaction with it, and first checks the ACLs of the
operations before it."""
_PARENTS: Final = (
    *(f"/config/{kind.plural}" for kind in EntityType if kind not in znodes.KRAFT_TYPES),
    znodes.CHANGES,
    znodes.COMMITS,
)


class StoreInspection:
    """Reads and dry runs; nothing is written.

    Args:
        name: The cluster.
        session_manager: Its sessions.
        follower: Its mirror, loaded before the calls.
    """

    def __init__(self, name: str, session_manager: SessionManager, follower: MirrorFollower) -> None:
        self._name = name
        self._session_manager = session_manager
        self._follower = follower

    @property
    def is_old(self) -> bool:
        """True if the connected server is older than ZooKeeper 3.6."""
        return not self._session_manager.current.multi_reads

    async def read_notifications(self, deadline: float) -> None:
        """Read all notifications, so that the warnings include those from before the load that name no entity."""

        def take(paths: Sequence[str], values: Sequence[Any]) -> None:
            for path, value in zip(paths, values, strict=True):
                number = znodes.sequence_of(path.rpartition("/")[2])
                if value is None or value is FORBIDDEN or number is None:
                    continue
                if znodes.decode_notification(value[0]) is None:
                    self._follower.anomalies.record_nameless(number)

        session = self._session_manager.current
        async with zookeeper_calls(self._name, deadline):
            names, _ = await session.children(znodes.CHANGES)
            reads = ReadWindow(session)
            reads.data(take, SizeEstimate()).request([f"{znodes.CHANGES}/{name}" for name in names])
            reads.start()
            await reads.done()

    async def missing_rights(self, deadline: float) -> list[str]:
        """Return the operations of changes that ZooKeeper does not permit, each as part of a sentence."""
        session = self._session_manager.current
        dry_runs: dict[str, list[Operation]] = {}
        for path in (*self._samples(), znodes.FREEZE):
            dry_runs[f"write {path}"] = [("set", path, b"", -1)]
        for parent in _PARENTS:
            child = f"{parent}/{session.writer}"
            dry_runs[f"create and delete znodes below {parent}"] = [("create", child, b""), ("delete", child)]
        async with zookeeper_calls(self._name, deadline):
            replies = {right: session.multi([*operations, _REFUSED]) for right, operations in dry_runs.items()}
            return [
                right for right, reply in replies.items() if any(isinstance(each, NoAuthError) for each in await reply)
            ]

    def _samples(self) -> list[str]:
        """Return the path of one entity of each type."""
        found: dict[tuple[Tree, str], str] = {}
        for tree, copy in self._follower.loaded().trees.items():
            for entity_id in copy.nodes:
                found.setdefault((tree, entity_id.partition("=")[0]), entity_id)
        return [znodes.path_of(tree, Entity.from_id(entity_id)) for (tree, _), entity_id in found.items()]
