"""Refused keys: pending keys of an entity whose values the Kafka cluster refused while it accepted others.

They are left alone until a client changes or reapplies them, or the cluster shows the value. All other keys of the
entity are delivered and followed as usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.services.pending_keys import pending_keys
from confplane.services.ports.applying import FINGERPRINT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.changes import Node
    from confplane.services.ports.applying import AlterRefused, RefusedValue, TargetState


def refused_keys(node: Node | None, state: TargetState | None) -> dict[str, RefusedValue]:
    """Return the keys of a znode whose values the cluster refused.

    A changed secret counts as refused until it is sent.
    """
    if node is None or state is None or node.defect is not None:
        return {}
    found = state.refused_keys
    return {
        key: found[key]
        for key in (pending_keys(node.extra) if found else ())
        if key in found
        and ((value := found[key].value) == node.config.get(key) or (value or "").startswith(FINGERPRINT))
    }


def all_refused_keys(node: Node | None, state: TargetState | None) -> dict[str, AlterRefused | RefusedValue]:
    """Return the refused keys of a znode, also those of an entity whose values the cluster refused as a whole."""
    found: dict[str, AlterRefused | RefusedValue] = {}
    if node is not None and state is not None and (refusal := state.refusal_of(node.mzxid)) is not None:
        config = node.config
        taken = {key for key, value in state.applied.items() if value == config.get(key)} - state.reapply
        keys = [key for key in pending_keys(node.extra) if key not in taken]
        found.update(dict.fromkeys(keys, refusal))
    return found | refused_keys(node, state)


def describe_refusals(refused: Mapping[str, AlterRefused | RefusedValue]) -> str:
    """Return refused keys with Kafka's messages as text."""
    return "; ".join(f"{key}: {each.text} (code {each.code})" for key, each in sorted(refused.items()))
