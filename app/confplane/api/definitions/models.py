"""The wire form of config definitions."""

from typing import Annotated, Literal

from pydantic import Field

from confplane.api.models import AnswerModel
from confplane.domain.releases import releases

RELEASE_PATTERN = "^(" + "|".join(releases()).replace(".", "[.]") + ")$"
"""A release with definitions."""
MAX_SEARCH = 100
"""The greatest number of characters in a search."""

EntityTypeFilter = Literal[
    "topic", "broker", "client", "producer", "consumer", "user", "client-id", "ip", "group", "client-metrics"
]
Section = Literal["topic", "broker", "producer", "consumer", "group", "client-metrics", "quota"]


class SynonymData(AnswerModel):
    """A broker config that a topic's or a group's config falls back on."""

    name: str
    factor: int = Field(description="The factor from its value: 3600000 from hours to milliseconds")


class ConfigDefinition(AnswerModel):
    """One config: its values, and the places where it may be set."""

    section: Section = Field(description="Whose config it is")
    name: str
    type: Literal["BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"]
    default: str | None = Field(description="As Kafka writes it; null: no default")
    required: bool
    valid: str | None = Field(description="The rule besides the type, in Kafka's notation", examples=["[1,...]"])
    importance: Literal["HIGH", "MEDIUM", "LOW"]
    dynamic: bool = Field(description="May be changed while the cluster runs")
    scope: Literal[
        "read-only", "per-broker", "cluster-wide", "per-topic", "per-group", "per-subscription", "per-entity"
    ]
    settable_on: list[str] = Field(
        description="Entity types that may have it: `user,client-id` is the pair", examples=[["user", "user,client-id"]]
    )
    sensitive: bool = Field(description="A secret: never shown")
    internal: bool = Field(description="Not meant for users of Kafka")
    synonyms: list[SynonymData] = Field(
        description="For topics and groups: the broker configs that it falls back on, in order of precedence"
    )
    group: list[str] = Field(description="Brokers: names for the same thing, the one that counts first")
    listener_prefix: str | None = Field(
        description="For brokers: the form of the key for one listener", examples=["listener.name.<listener>."]
    )
    prefix_required: bool = Field(description="Brokers: dynamic only with a listener's prefix")
    unit: str | None = Field(description="For quotas: the unit", examples=["bytes per second"])
    description: str | None
    documentation: str | None = Field(
        description="Link to Kafka's documentation; null for a key that the setting `extra_keys` declares"
    )
    releases: list[str] = Field(
        description="The releases of Kafka that define the config, among `releases` of the response",
        examples=[["4.3", "4.4"]],
    )


class ConfigDefinitions(AnswerModel):
    """Definitions, ordered by section and name."""

    kafka_version: Annotated[str, Field(description="The release of these definitions", examples=["3.9"])]
    releases: list[str] = Field(description="All releases with definitions, ascending", examples=[list(releases())])
    items: list[ConfigDefinition]
    next_page_token: None = Field(description="Always null: all are on one page")
