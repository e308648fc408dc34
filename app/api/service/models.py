"""The forms of the service's own state."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from app.api.grants.models import GrantContent, GrantId
from app.api.models import Absent, AnswerModel, Count, Revision, Time
from app.api.tokens.models import NarrowingData, TokenId


class Liveness(AnswerModel):
    """The process answers."""

    status: Literal["alive"]
    version: str


class ClusterState(AnswerModel):
    """A cluster as this process sees it."""

    connected: bool
    session: Literal["connecting", "connected", "suspended", "lost"] = Field(
        description="This process's ZooKeeper session. Lost: it expired, or was cut off for longer than its timeout. "
        "Unless it is connected writes are refused at once, and reads that ask for a consistency"
    )
    session_ms: Count = Field(description="For how long the session has been so, in ms")
    loaded: bool
    mirror: Literal["loading", "fresh", "stale", "reloading"] = Field(
        description="This process's copy of the cluster's configs. While it is reloading the old one is answered from"
    )
    revision: Revision
    stale_ms: Count | None = Field(description="For how long the copy may have been stale, in ms; null while fresh")
    brokers_registered: bool
    notifications: Count
    frozen: str | None = Field(description="The reason why no config may be written now; null while they may")
    warnings: list[str]


class ClusterData(ClusterState):
    """A cluster with its name."""

    name: str


class Recorded(AnswerModel):
    """The span of the audit trail that has writes by others past this service."""

    since: Revision | None = Field(description="null: first contact is under way, or an early version made it")
    since_at: Time | None
    until: Revision = Field(description="Everything with a notification up to it is in the trail")


class ClusterDetails(ClusterData):
    """A cluster and its trail."""

    recorded: Recorded | None = Field(
        description="null where the setting `record_external_changes` is off, or nothing was heard of it yet"
    )


class ClusterList(AnswerModel):
    """All clusters."""

    items: list[ClusterData]
    next_page_token: None


class ReadinessReport(AnswerModel):
    """The state of a process and its stores."""

    status: Literal["starting", "ready", "degraded", "stopping"]
    clusters: dict[str, ClusterState]
    postgres: str
    warnings: list[str]


class OwnGrant(GrantContent):
    """A grant that counts for the caller."""

    id: GrantId


class ResourceMetadata(BaseModel):
    """This service as an OAuth 2.0 protected resource (RFC 9728)."""

    model_config = ConfigDict(extra="forbid")

    resource: str = Field(description="The origin at which clients reach the service")
    authorization_servers: list[str] | Absent = Field(
        default=None, description="The issuers whose access tokens are accepted; absent where there are none"
    )
    bearer_methods_supported: list[Literal["header"]]
    resource_name: str
    resource_documentation: str


class WhoAmI(AnswerModel):
    """The caller."""

    principal: str = Field(examples=["User:admin"])
    authenticated_by: str
    on_behalf_of: str | None = Field(description="The user for whom the caller acts, by Confplane-On-Behalf-Of")
    groups: list[str]
    owner: str | None = Field(description="The person or team behind the credential; null: the principal")
    token_id: TokenId | None = Field(description="Of an API token")
    expires_at: Time | None = Field(description="The end of the credential")
    narrowing: NarrowingData | None = Field(description="The limits of the credential; null: none")
    grants: list[OwnGrant] = Field(
        description="The grants that count: the caller's own, those of its groups and those of everybody. Empty for the"
        " admin token, which needs none"
    )
