"""Configs of topics, brokers, groups and client metrics: the resources, and requests of KIP-133, 339, 21 and 5."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from confplane.client.core.calls import call
from confplane.client.core.operations import Family, S, operation
from confplane.client.families.bodies import Change, incremental
from confplane.client.families.resources import FacetResources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from confplane.client.core.calls import ApiCall, ReadOptions, WriteOptions
    from confplane.client.types import (  # noqa: F401 - bases of classes name some of them as texts
        AlteredConfigResource,
        AlteredEntity,
        AlteredEntityConfigs,
        AlteredResources,
        ChangedGlobalConfig,
        ConfigResource,
        ConfigsList,
        ConfigsResource,
        DescribedEntityConfigs,
        DescribedResources,
        EffectiveConfigs,
        EntityName,
        GlobalConfig,
        GlobalConfigOp,
    )


class Configs(FacetResources[S, "str | None", "ConfigsList", "ConfigsResource", "EffectiveConfigs"]):
    """Configs of topics, brokers, groups and client metrics. A secret is read as None; writing None keeps it."""

    facet: ClassVar[str] = "configs"
    member: ClassVar[str] = "configs"

    @operation
    def describe(
        self,
        resources: Sequence[ConfigResource],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        **fresh: Unpack[ReadOptions],
    ) -> ApiCall[DescribedResources]:
        """Describe the effective configs of resources (DescribeConfigs).

        Args:
            resources: The resources, each with the names of its configs or all.
            include_synonyms: Include the other values set for each config, in order of precedence.
            include_documentation: Include a description of each config.
            **fresh: How new the state must be.
        """
        body = {
            "resources": list(resources),
            "includeSynonyms": include_synonyms,
            "includeDocumentation": include_documentation,
        }
        return call("POST", f"{self._base}/configs:describe", fresh, json=body, reads=True)

    @operation
    def alter(
        self, changes: Sequence[Change[str]], *, atomic: bool = False, **terms: Unpack[WriteOptions]
    ) -> ApiCall[AlteredResources]:
        """Set and remove configs of resources (IncrementalAlterConfigs).

        Args:
            changes: The entities with their new values.
            atomic: All in one change, or nothing.
            **terms: The terms of the write.
        """
        return self._altered([incremental(change) for change in changes], atomic=atomic, terms=terms)

    @operation
    def incremental_alter(
        self, resources: Sequence[AlteredConfigResource], *, atomic: bool = False, **terms: Unpack[WriteOptions]
    ) -> ApiCall[AlteredResources]:
        """Alter configs of resources by Kafka's four operations, among them APPEND and SUBTRACT for lists.

        Args:
            resources: The resources with their operations.
            atomic: All in one change, or nothing.
            **terms: The terms of the write.
        """
        return self._altered(resources, atomic=atomic, terms=terms)

    def _altered(self, resources: Sequence[object], *, atomic: bool, terms: WriteOptions) -> ApiCall[AlteredResources]:
        body = {"resources": list(resources), "atomic": atomic}
        return call("POST", f"{self._base}/configs:incrementalAlter", terms, json=body, keyed=True)


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
