"""Settings of connections to other servers: TLS, and a Kafka cluster without ZooKeeper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from confplane.identity_settings import SettingsGroup

Address = Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[1-9][0-9]{0,4}$")]
"""``host:port``; an IPv6 address is in brackets."""


class ClientTlsSettings(SettingsGroup):
    """TLS to other servers. The files are read again for each connection."""

    ca_file: Path | None = Field(
        default=None, description="The authorities of the servers' certificates, in PEM; the system's without"
    )
    certificate_file: Path | None = Field(
        default=None, description="This service's certificate in PEM, by which the servers know it"
    )
    key_file: Path | None = Field(default=None, description="The key of the certificate, in PEM and not encrypted")
    verify_hostname: bool = Field(
        default=True, description="Servers have certificates for their names as this service reaches them"
    )

    @model_validator(mode="after")
    def _pair(self) -> ClientTlsSettings:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file go together: set both of them, or none")
        return self


class KafkaSaslSettings(SettingsGroup):
    """The login at a Kafka cluster. The file is read again for each login."""

    mechanism: Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"] = Field(
        description="As sasl.mechanism of Kafka's clients"
    )
    username: str | None = Field(default=None, min_length=1, description="Of SCRAM and PLAIN")
    password_file: Path | None = Field(
        default=None, description="A file whose first line is the password of SCRAM or PLAIN"
    )
    token_file: Path | None = Field(
        default=None, description="A file whose first line is the access token of OAUTHBEARER; others keep it fresh"
    )

    @model_validator(mode="after")
    def _complete(self) -> KafkaSaslSettings:
        bearer = self.mechanism == "OAUTHBEARER"
        if bearer and (self.token_file is None or self.username is not None or self.password_file is not None):
            raise ValueError("OAUTHBEARER needs token_file, and neither username nor password_file")
        if not bearer and (self.username is None or self.password_file is None or self.token_file is not None):
            raise ValueError(f"{self.mechanism} needs username and password_file, and no token_file")
        return self


class KafkaMaxAgeSettings(SettingsGroup):
    """The longest time between two complete polls of an entity type. A warning follows if it is exceeded."""

    client_quotas: int = Field(default=30, ge=5, le=86_400, description="Seconds for client quotas")
    topics: int = Field(default=1_800, ge=5, le=86_400, description="Seconds for the configs of all topics")
    brokers: int = Field(default=150, ge=5, le=86_400, description="Seconds for the configs of brokers")
    groups: int = Field(default=450, ge=5, le=86_400, description="Seconds for the configs of groups")
    client_metrics: int = Field(default=450, ge=5, le=86_400, description="Seconds for client metrics subscriptions")


class KafkaSettings(SettingsGroup):
    """The brokers of a Kafka cluster without ZooKeeper, which are asked and never written to (docs/kafka4.md)."""

    bootstrap: tuple[Address, ...] = Field(
        min_length=1, description="host:port of some brokers, as in bootstrap.servers of Kafka's clients"
    )
    controllers: tuple[Address, ...] = Field(
        default=(),
        description="host:port of the controllers, to follow every write in the metadata log. Needs CLUSTER_ACTION,"
        " and shows SCRAM records and plain passwords to this service, which keeps neither",
    )
    tls: ClientTlsSettings | None = Field(default=None, description="TLS to brokers and controllers; none without")
    sasl: KafkaSaslSettings | None = Field(default=None, description="The login; none without")
    request_timeout_ms: int = Field(
        default=10_000, ge=500, le=300_000, description="Longest wait for one answer of a broker"
    )
    max_age_s: KafkaMaxAgeSettings = Field(
        default_factory=KafkaMaxAgeSettings,
        description="The longest time between two complete polls, by entity type, even if polls then take more than 2 %"
        " of a core",
    )
