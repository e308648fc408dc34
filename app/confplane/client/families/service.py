"""The service itself: its health, its metrics, and the caller's own token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.client.core.calls import call
from confplane.client.core.operations import Family, S, operation

if TYPE_CHECKING:
    from confplane.client.core.calls import ApiCall
    from confplane.client.types import Liveness, ReadinessReport, ResourceMetadata, WhoAmI


class Process(Family[S]):
    """The process that answers."""

    @operation
    def livez(self) -> ApiCall[Liveness]:
        """Check that the process is alive."""
        return call("GET", "/livez")

    @operation
    def readyz(self) -> ApiCall[ReadinessReport]:
        """Read the readiness of the process.

        Status 503 with such a report raises a ProblemError with the report as its body.
        """
        return call("GET", "/readyz", once=True)

    @operation
    def metrics(self) -> ApiCall[str]:
        """Read the metrics of the process in Prometheus' text format."""
        return call("GET", "/metrics", text=True)

    @operation
    def protected_resource(self) -> ApiCall[ResourceMetadata]:
        """Read the issuers of access tokens for this service (RFC 9728)."""
        return call("GET", "/.well-known/oauth-protected-resource")

    @operation
    def whoami(self) -> ApiCall[WhoAmI]:
        """Read the caller's principal, its groups, limits and grants."""
        return call("GET", "/v1/whoami")
