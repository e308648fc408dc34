"""Changes of this service's own znodes with a state of the whole cluster: its freeze, its layout, its target.

The trail has them under the entity ``cluster``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from app.domain.ops import Op, OpType
from app.services.changes.draft import Draft
from app.services.ports.cluster_states import ENTITY, Freeze, Layout, Target
from app.services.ports.trail import IntentEntity
from app.services.ports.transactions import Guarded, StateWrite

S = TypeVar("S", Freeze | None, Layout | None, Target | None)


@dataclass(frozen=True, slots=True)
class StateChange(Generic[S]):
    """A state as read, and as it will be written."""

    before: S
    after: S


def draft(
    path: str,
    key: str,
    change: StateChange[S],
    *,
    version: int,
    czxid: int | None,
    guarded: Guarded,
) -> Draft[StateChange[S]]:
    """Return the draft of a state's change.

    Args:
        path: The path of the znode.
        key: The key of the state in the trail.
        change: The state before and after.
        version: The version of the znode, as read.
        czxid: The czxid of the znode, as read.
        guarded: See :class:`~app.services.ports.transactions.Transaction`.
    """
    shown = _shown(change.after)
    op = Op(key, OpType.DELETE if shown is None else OpType.SET, shown)
    return Draft(
        change,
        writes=(StateWrite(path, version, change.after, czxid),),
        entities=(
            IntentEntity(
                entity_id=ENTITY,
                facet=ENTITY,
                path=path,
                version_read=version,
                czxid_read=czxid,
                keys=(key,),
                ops=(op.as_json(),),
                before={key: _shown(change.before)},
                after={key: shown},
            ),
        ),
        guarded=guarded,
    )


def _shown(state: Freeze | Layout | Target | None) -> str | None:
    """Return a state in the trail's form; None for an empty node."""
    return state.reason if isinstance(state, Freeze) else None if state is None else str(state)
