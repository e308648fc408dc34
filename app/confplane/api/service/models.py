"""The forms of the service's own state."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from confplane.api.grants import GrantContent, GrantId
from confplane.api.models import Absent, AnswerModel, Count, Revision, Time
from confplane.api.tokens import NarrowingData, TokenId


class Liveness(AnswerModel):
    """The process answers."""

    status: Literal["alive"]
    version: str


class ClusterLoad(AnswerModel):
    """The progress of loading the copy, at the start or after missed notifications."""

    read: Count = Field(description="Nodes that were read")
    listed: Count = Field(description="Nodes whose names are known; the number may rise until the end")
    ms: Count = Field(description="Milliseconds since the load began")


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
    load: ClusterLoad | None = Field(description="null unless the copy is loading or reloading")
    revision: Revision
    stale_ms: Count | None = Field(description="For how long the copy may have been stale, in ms; null while fresh")
    brokers_registered: bool
    notifications: Count
    frozen: str | None = Field(description="The reason why no config may be written now; null while they may")
    warnings: list[str]


class ClusterData(ClusterState):
    """A cluster. A caller who may describe nothing in it sees only the name."""

    model_config = ConfigDict(json_schema_extra=lambda schema: schema.update(required=["name"]))

    name: str


class Recorded(AnswerModel):
    """The span of the audit trail that includes external changes."""

    since: Revision | None = Field(description="null during the first contact, or if an early version created it")
    since_at: Time | None
    until: Revision = Field(description="Everything with a notification up to it is in the trail")


class ReasonedName(AnswerModel):
    """A name with the reason why its config is not followed."""

    name: str
    reason: str


class ReasonedNames(AnswerModel):
    """Names with reasons."""

    count: Count
    first: list[ReasonedName] = Field(
        description="The first hundred, in order; empty for callers who may not describe the whole cluster"
    )


class ObservedArea(AnswerModel):
    """The observation of one part of a Kafka cluster."""

    permission: Literal["read-only", "none"] = Field(description="none: the service may not read this part")
    reason: str | None = Field(description="The missing right, or what else is missing")
    observed_at: Time | None = Field(description="The start of the last poll of this whole part; null: not polled yet")
    entities: Count = Field(description="Entities with configs")
    unmanaged: ReasonedNames = Field(description="Entities and keys that ZooKeeper can't hold")
    hidden: ReasonedNames = Field(description="Keys whose values are not followed: passwords, references to providers")
    denied: ReasonedNames = Field(description="Topics and groups whose configs the service may not describe")
    ineffective: ReasonedNames = Field(description="Keys that are set for a broker, and that it does not use")
    problem: str | None = Field(description="The reason why the last poll failed")


EntityTypeName = Literal["client-quotas", "topics", "brokers", "groups", "client-metrics"]
Mode = Literal["observe", "adopt", "enforce"]


class ApplyingData(AnswerModel):
    """The application of quotas and configs that callers wrote to the Kafka cluster."""

    pending: Count = Field(description="Entities with changes that the cluster has not taken yet")
    waiting_ms: Count = Field(description="Milliseconds for which the first of them has waited")
    unknown: ReasonedNames = Field(description="Entities that were sent without an answer; they are sent again")
    refused: ReasonedNames = Field(description="Entities that the cluster refused, with its words")
    held: ReasonedNames = Field(
        description="Entities that wait alone: their broker is away, a right is missing, or their topic is looked at"
    )
    contested: ReasonedNames = Field(
        description="In the mode enforce: keys that are changed externally again and again, and are no longer reverted"
    )
    extra: ReasonedNames = Field(description="In the mode enforce: keys that were only set outside this service")
    problem: str | None = Field(description="The reason why nothing is applied now")


class TargetTopics(AnswerModel):
    """The topics of a Kafka cluster, with or without configs."""

    count: Count
    polled_at: Time = Field(description="The time of the poll that listed them")
    outdated: bool = Field(description="true: the list is more than an hour old")


class TargetData(AnswerModel):
    """The Kafka cluster without ZooKeeper whose quotas and configs are followed."""

    kind: Literal["zookeeper", "kraft"] = Field(
        description="zookeeper: the brokers read ZooKeeper themselves, and all other members are null"
    )
    mode: Mode | None = Field(
        description="observe: nothing is written to the Kafka cluster; adopt: callers' changes are applied to it;"
        " enforce: external changes there are reverted, too"
    )
    modes: dict[EntityTypeName, Mode] | None = Field(description="The mode of each entity type")
    cluster_id: str | None
    imported: bool | None = Field(description="All configs were imported")
    paused: bool | None
    release: str | None = Field(description="The release of the oldest broker, such as 4.4")
    metadata_version: str | None
    reported_at: Time | None = Field(description="The time of the leader's report, which all of this is from")
    log_offset: str | None = Field(description="The offset up to which the metadata log was followed; null: it is not")
    log_problem: str | None = Field(
        description="The reason why the metadata log is not followed, where the settings name controllers"
    )
    problem: str | None = Field(description="The reason why nothing is followed now")
    areas: dict[EntityTypeName, ObservedArea] | None
    topics: TargetTopics | None = Field(
        description="All topics that the service can see; null: they were not listed yet, or Postgres is away"
    )
    applying: ApplyingData | None = Field(description="null where callers write nothing, or nothing was heard yet")


class ClusterDetails(ClusterData):
    """A cluster, its trail and its target. A caller who may describe nothing in it sees only the name."""

    recorded: Recorded | None = Field(
        description="null where the setting `record_external_changes` is off, or nothing was heard of it yet"
    )
    target: TargetData


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
        description="The grants that apply: those of the caller, of its groups and of everybody. Empty for the admin"
        " token, which needs no grants"
    )
