"""All families of operations, as both clients have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane.client.core.operations import Family, S
from confplane.client.families.access import AccessQueries, Grants, Tokens
from confplane.client.families.audit import Audit
from confplane.client.families.change_requests import ChangeRequests, Schedules
from confplane.client.families.clients import ClientConfigs, ClientQuotas, Clients
from confplane.client.families.cluster import ClusterConfigDefinitions, Clusters, Drift, Process, Registrations
from confplane.client.families.configs import Configs, EntityConfigs, GlobalConfigs
from confplane.client.families.feed import Feed, Webhooks
from confplane.client.families.manifests import Manifests
from confplane.client.families.rollups import Rollups

if TYPE_CHECKING:
    from confplane.client.families.resources import FacetResources


class Families(Family[S]):
    """The operations of the API, an attribute for each family."""

    def __init__(self, sender: S, cluster: str) -> None:
        super().__init__(sender, cluster)
        self.cluster = cluster
        self.access = AccessQueries(sender, cluster)
        self.audit = Audit(sender, cluster)
        self.change_requests = ChangeRequests(sender, cluster)
        self.client_configs = ClientConfigs(sender, cluster)
        self.client_quotas = ClientQuotas(sender, cluster)
        self.clients = Clients(sender, cluster)
        self.clusters = Clusters(sender, cluster)
        self.config_definitions = ClusterConfigDefinitions(sender, cluster)
        self.configs = Configs(sender, cluster)
        self.drift = Drift(sender, cluster)
        self.entity_configs = EntityConfigs(sender, cluster)
        self.feed = Feed(sender, cluster)
        self.global_config = GlobalConfigs(sender, cluster)
        self.grants = Grants(sender, cluster)
        self.manifests = Manifests(sender, cluster)
        self.registrations = Registrations(sender, cluster)
        self.rollups = Rollups(sender, cluster)
        self.schedules = Schedules(sender, cluster)
        self.service = Process(sender, cluster)
        self.tokens = Tokens(sender, cluster)
        self.webhooks = Webhooks(sender, cluster)

    def resources(self, facet: str) -> FacetResources[S, Any, Any, Any, Any]:
        """Return the resources of a facet by its name in paths, such as ``client-quotas``.

        Raises:
            KeyError: No facet has this name.
        """
        families: tuple[FacetResources[S, Any, Any, Any, Any], ...] = (
            self.client_quotas,
            self.client_configs,
            self.configs,
        )
        return {family.facet: family for family in families}[facet]
