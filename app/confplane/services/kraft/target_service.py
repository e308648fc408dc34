"""The target of a cluster: set before an import, completed by it, paused and resumed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import AlreadyExistsError, NotFoundError, WriteOutcome
from confplane.domain.facets import Tree
from confplane.services.changes.edits import ChangeJob
from confplane.services.changes.states import decide_state
from confplane.services.ports.cluster_states import Target, TargetMode
from confplane.services.ports.kafka import KraftEntityType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from confplane.services.changes.callers import Caller
    from confplane.services.changes.runner import ChangeRunner
    from confplane.services.ports.applying import TargetStates
    from confplane.services.ports.store import ClusterStore

_CONTENDED: Final = "Other writers kept changing the target until the deadline; nothing was applied"


class TargetService:
    """Changes the target of one cluster.

    Each change is in the trail. Each raises ``UnavailableError`` if ZooKeeper or Postgres is unavailable,
    ``OutcomeUnknownError`` if the reply was lost, and, except for :meth:`begin`, ``NotFoundError`` without a target.
    """

    def __init__(self, runner: ChangeRunner, store: ClusterStore, states: TargetStates) -> None:
        self._runner = runner
        self._store = store
        self._states = states

    async def begin(self, cluster_id: str, caller: Caller) -> Target:
        """Make a Kafka cluster the target, its configs not imported yet; return the target as it is now.

        Nothing is changed if the cluster is the target already.

        Raises:
            AlreadyExistsError: Another Kafka cluster is the target.
        """

        def after(target: Target | None) -> Target:
            if target is not None and target.cluster_id != cluster_id:
                raise AlreadyExistsError(
                    f"Cluster {self._store.name} follows the Kafka cluster {target.cluster_id} already, and the brokers"
                    f" are of {cluster_id}. Give that cluster another name in the settings, with a ZooKeeper path of"
                    " its own",
                    outcome=WriteOutcome.NOT_APPLIED,
                )
            return target or Target(cluster_id)

        return await self._change(after, caller)

    async def complete(self, caller: Caller) -> Target:
        """Record that all configs are imported: from now on the leader observes the cluster."""
        return await self._change(lambda target: replace(self._known(target), imported=True), caller)

    async def pause(self, caller: Caller) -> Target:
        """Stop the observation. Once this returns, no change follows the cluster, whichever process tries."""
        return await self._change(lambda target: replace(self._known(target), paused=True), caller)

    async def resume(self, caller: Caller) -> Target:
        """Continue the observation."""
        return await self._change(lambda target: replace(self._known(target), paused=False), caller)

    async def set_mode(
        self, mode: TargetMode, caller: Caller, entity_types: Collection[KraftEntityType] = ()
    ) -> Target:
        """Set the mode of some entity types, or of all if none is named. When this returns, every process obeys it.

        Under ``observe`` no client change commits from then on, and no delivery begins. The states of deliveries are
        deleted when a mode ends. They are also deleted for types that clients could not write until now, because they
        may belong to another ZooKeeper ensemble with other revisions. Values that may still arrive are kept, and so is
        what the cluster has taken of entities that did not change since.

        Raises:
            NotFoundError: The import is not complete.
        """
        target = (await self._store.read_state(Target, caller.deadline)).value
        if target is not None and mode is not TargetMode.OBSERVE:
            begun = [each for each in entity_types or KraftEntityType if not target.applies_to(each)]
            await self._forget(begun, caller.deadline)
        changed = await self._change(lambda target: self._imported(target).with_mode(mode, entity_types), caller)
        if mode is TargetMode.OBSERVE:
            # An earlier release that begins the next mode would not know them.
            await self._forget(entity_types or list(KraftEntityType), caller.deadline)
        return changed

    async def _forget(self, entity_types: Collection[KraftEntityType], deadline: float) -> None:
        """Delete the states of entity types, except of entities that the cluster has taken as they are now."""
        await self._store.catch_up(deadline)
        pending = [self._store.get(Tree.CONFIG, each) for each in self._store.entities_with_pending_keys()]
        revisions = {node.id: node.mzxid for node in pending if node is not None}
        await self._states.forget(self._store.name, entity_types, revisions)

    def _imported(self, target: Target | None) -> Target:
        known = self._known(target)
        if not known.imported:
            raise NotFoundError(
                f"The import of cluster {self._store.name} is not complete; `confplane target import --apply` completes"
                " it",
                outcome=WriteOutcome.NOT_APPLIED,
            )
        return known

    def _known(self, target: Target | None) -> Target:
        if target is None:
            raise NotFoundError(
                f"Cluster {self._store.name} follows no Kafka cluster; `confplane target import --apply` makes it"
                " follow one",
                outcome=WriteOutcome.NOT_APPLIED,
            )
        return target

    async def _change(self, after: Callable[[Target | None], Target], caller: Caller) -> Target:
        decide = decide_state(self._store, Target, lambda state: after(state.value), caller.deadline)
        ended = await self._runner.run(self._store, ChangeJob(decide, contended=_CONTENDED), caller)
        return self._known(ended.decided.after)
