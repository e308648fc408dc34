"""``confplane target adopt``, ``enforce``, ``observe``, ``pause`` and ``resume``."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import typer

from confplane.cli import callers
from confplane.services.kraft.target_service import TargetService
from confplane.wiring import open_cluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from confplane.services.changes.callers import Caller
    from confplane.services.ports.cluster_states import Target
    from confplane.services.ports.kafka import KraftEntityType
    from confplane.settings import Settings


class TargetAction(Enum):
    """A change of the target, with its result in words."""

    ADOPT = (
        "Cluster {name} takes {what} from callers, and applies them to the Kafka cluster {id}. `confplane"
        " target observe` ends this"
    )
    ENFORCE = (
        "Cluster {name} takes {what} from callers, applies them to the Kafka cluster {id}, and puts back"
        " what others change. `confplane target adopt` or `observe` ends this"
    )
    OBSERVE = "Cluster {name} takes no {what} from callers: it follows the Kafka cluster {id}"
    PAUSE = (
        "Cluster {name} does not follow the Kafka cluster {id} any more: its copy stays as it is. `confplane target"
        " resume` ends this"
    )
    RESUME = "Cluster {name} follows the Kafka cluster {id}"


def run(
    settings: Settings, cluster: str, reason: str, action: TargetAction, types: Sequence[KraftEntityType] = ()
) -> int:
    """Change the target of a cluster, print the result, and return the exit code.

    Args:
        settings: The settings of the service.
        cluster: The cluster's name.
        reason: The reason, for the trail.
        action: The change.
        types: The entity types of a change of the mode; empty for all.
    """
    return callers.run(_change(settings, cluster, reason, action, types), "Not done")


async def _change(
    settings: Settings, cluster: str, reason: str, action: TargetAction, types: Sequence[KraftEntityType]
) -> int:
    async with open_cluster(settings, cluster) as parts:
        service = TargetService(parts.runner, parts.stores[cluster])
        changes: dict[TargetAction, Callable[[Caller], Awaitable[Target]]] = {
            TargetAction.ADOPT: partial(service.adopt, parts.target_states, entity_types=types),
            TargetAction.ENFORCE: partial(service.enforce, parts.target_states, entity_types=types),
            TargetAction.OBSERVE: partial(service.observe, entity_types=types),
            TargetAction.PAUSE: service.pause,
            TargetAction.RESUME: service.resume,
        }
        target = await changes[action](callers.caller(reason))
    typer.echo(action.value.format(name=cluster, id=target.cluster_id, what=", ".join(types) or "quotas and configs"))
    return callers.DONE
