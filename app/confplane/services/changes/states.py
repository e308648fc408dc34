"""Changes of this service's own znodes with a state of the whole cluster: its freeze, its layout, its target.

The trail has them under the entity ``cluster``, with the key of the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic

from confplane.domain.ops import Op, OpType
from confplane.services.changes.edits import Draft, NoChange
from confplane.services.cluster_facet import LAYOUT_PATH
from confplane.services.ports.cluster_states import ENTITY, LAYOUT_KEY, Freeze, Incarnation, Layout, S, Target
from confplane.services.ports.trail import IntentEntity
from confplane.services.ports.transactions import Guarded, StateWrite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confplane.services.changes.edits import Decide
    from confplane.services.ports.cluster_states import StoredState
    from confplane.services.ports.store import ClusterStore

FREEZE_PATH: Final = "/confplane/freeze"
FREEZE_KEY: Final = "frozen"
_NODES: Final[Mapping[type, tuple[str, str]]] = {
    Freeze: (FREEZE_PATH, FREEZE_KEY),
    Layout: (LAYOUT_PATH, LAYOUT_KEY),
    Target: ("/confplane/target", "target"),
    Incarnation: ("/confplane/incarnation", "incarnation"),
}
"""The path of each state's znode, and its key in the trail."""


@dataclass(frozen=True, slots=True)
class StateChange(Generic[S]):
    """A state as read, and as it will be written; None if it does not exist."""

    before: S | None
    after: S | None


def decide_state(
    store: ClusterStore,
    kind: type[S],
    after: Callable[[StoredState[S]], S | None],
    deadline: float,
    *,
    guarded: Guarded = Guarded.NONE,
    answers: Callable[[StateChange[S]], tuple[dict[str, Any], ...]] = lambda _: (),
) -> Decide[StateChange[S]]:
    """Return the function of a change of a state.

    Args:
        store: The cluster.
        kind: The state.
        after: Returns the new state, given the current one.
        deadline: The deadline of each attempt's read of ZooKeeper.
        guarded: See :class:`~confplane.services.ports.transactions.Transaction`. A thaw must commit in a frozen
            cluster, and a freeze under any controller.
        answers: Returns the answers that an Idempotency-Key keeps.
    """

    async def decide(*, again: bool) -> Draft[StateChange[S]] | NoChange[StateChange[S]]:
        del again  # decided on ZooKeeper's state at every attempt
        read = await store.read_state(kind, deadline)
        change = StateChange(read.value, after(read))
        if change.after == change.before:
            return NoChange(change)
        path, key = _NODES[kind]
        shown = _shown(change.after)
        row = IntentEntity(
            entity_id=ENTITY,
            facet=ENTITY,
            path=path,
            version_read=read.version,
            czxid_read=read.czxid,
            keys=(key,),
            ops=(Op(key, OpType.DELETE if shown is None else OpType.SET, shown).as_json(),),
            before={key: _shown(change.before)},
            after={key: shown},
        )
        write = StateWrite(path, read.version, change.after, read.czxid)
        return Draft(change, writes=(write,), entities=(row,), answers=answers(change), guarded=guarded)

    return decide


def _shown(state: Freeze | Layout | Target | Incarnation | None) -> str | None:
    """Return a state in the trail's form; None for an empty node."""
    return state.reason if isinstance(state, Freeze) else None if state is None else str(state)
