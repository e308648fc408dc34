"""Requests of earlier proposals for Kafka: KIP-21's entity configs and KIP-5's global config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.client.core.calls import call
from confplane.client.core.operations import Family, S, operation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from confplane.client.core.calls import ApiCall, ReadOptions, WriteOptions
    from confplane.client.types import (
        AlteredEntity,
        AlteredEntityConfigs,
        ChangedGlobalConfig,
        DescribedEntityConfigs,
        EntityName,
        GlobalConfig,
        GlobalConfigOp,
    )


class EntityConfigs(Family[S]):
    """Configs of entities of any type (KIP-21)."""

    @operation
    def describe(self, entities: Sequence[EntityName], **fresh: Unpack[ReadOptions]) -> ApiCall[DescribedEntityConfigs]:
        """Describe the configs that entities declare (DescribeConfig)."""
        body = {"entities": list(entities)}
        return call("POST", f"{self._base}/entity-configs:describe", fresh, json=body, reads=True)

    @operation
    def alter(self, entities: Sequence[AlteredEntity], **terms: Unpack[WriteOptions]) -> ApiCall[AlteredEntityConfigs]:
        """Add and delete configs of entities (AlterConfig)."""
        body = {"entities": list(entities)}
        return call("POST", f"{self._base}/entity-configs:alter", terms, json=body, keyed=True)


class GlobalConfigs(Family[S]):
    """The configs of the default of all brokers (KIP-5)."""

    @operation
    def get(self, **fresh: Unpack[ReadOptions]) -> ApiCall[GlobalConfig]:
        """Read the global config."""
        return call("GET", f"{self._base}/global-config", fresh)

    @operation
    def change(self, ops: Sequence[GlobalConfigOp], **terms: Unpack[WriteOptions]) -> ApiCall[ChangedGlobalConfig]:
        """Change keys of the global config."""
        return call("POST", f"{self._base}/global-config:change", terms, json={"configData": list(ops)}, keyed=True)
