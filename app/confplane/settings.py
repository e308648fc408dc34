"""The service's own settings: environment variables ``CONFPLANE_...`` over an optional YAML file.

``CONFPLANE_SETTINGS_FILE`` names the file. Nested settings join with two underscores:
``CONFPLANE_POSTGRES__DSN``, ``CONFPLANE_HTTP__PORT``. The clusters are usually in the file::

    clusters:
      payments:
        zookeeper: zk1:2181,zk2:2181,zk3:2181/kafka
        client_configs_layout: separate
"""

from __future__ import annotations

import os
import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Discriminator, Field, SecretStr, Tag, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, YamlConfigSettingsSource

from confplane.connection_settings import ClientTlsSettings, KafkaSettings
from confplane.domain.errors import NotFoundError
from confplane.domain.extra_keys import Catalogs
from confplane.domain.facets import ClientConfigsLayout
from confplane.domain.outbound_urls import check_allowed_host
from confplane.extra_key_settings import ExtraKeySettings, check_distinct
from confplane.identity_settings import OidcSettings, TlsSettings, check_sources, is_loopback
from confplane.identity_settings import SettingsGroup as _SettingsGroup


class UnusableSettingsError(ValueError):
    """The settings have the right form but name something unusable; ``problems`` has one line each, without secrets."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def _as_text(key: object) -> object:
    """Convert a number to text: YAML has numbers for values that are texts in JSON and the environment."""
    return str(key) if isinstance(key, int) else key


def _as_network(value: object) -> IPv4Network | IPv6Network:
    """Return the network of a proxy; a single address is a network of its own.

    Raises:
        ValueError: The value is not an address (a host name, a wildcard), or is a network of all addresses, which would
            trust every client.
    """
    try:
        network = ip_network(str(value))
    except ValueError:
        network = None
    if network is None or network.prefixlen == 0:
        raise ValueError(
            f"{value!a} is not the address or network of a proxy; give IP addresses such as 10.0.0.7 or networks such "
            "as 10.1.0.0/16, whose bits behind the prefix are 0"
        )
    return network


class BrokerEncoderSettings(_SettingsGroup):
    """A broker's static ``password.encoder.*`` settings, which only the broker and its operators know.

    The files hold a secret each, alone on one line. A setting that is left out has Kafka's default.
    """

    secret_file: Path | None = Field(default=None, description="A file that holds password.encoder.secret")
    old_secret_file: Path | None = Field(
        default=None, description="A file that holds password.encoder.old.secret, while the secret is being replaced"
    )
    keyfactory_algorithm: (
        Literal[
            "PBKDF2WithHmacSHA1",
            "PBKDF2WithHmacSHA224",
            "PBKDF2WithHmacSHA256",
            "PBKDF2WithHmacSHA384",
            "PBKDF2WithHmacSHA512",
        ]
        | None
    ) = Field(default=None, description="As password.encoder.keyfactory.algorithm of the brokers")
    cipher_algorithm: (
        Literal[
            "AES/CBC/PKCS5Padding",
            "AES/CFB/PKCS5Padding",
            "AES/OFB/PKCS5Padding",
            "AES/GCM/NoPadding",
            "DES/CBC/PKCS5Padding",
            "DESede/CBC/PKCS5Padding",
        ]
        | None
    ) = Field(default=None, description="As password.encoder.cipher.algorithm of the brokers")
    key_length: int | None = Field(
        default=None, ge=8, description="As password.encoder.key.length of the brokers, in bits"
    )
    iterations: int | None = Field(
        default=None, ge=1024, le=2_000_000, description="As password.encoder.iterations of the brokers"
    )


class PasswordEncoderSettings(BrokerEncoderSettings):
    """The settings that all brokers of a cluster share, and those of single brokers."""

    brokers: dict[Annotated[int, Field(ge=0, le=2_147_483_647)], BrokerEncoderSettings] = Field(
        default={}, description="By broker id; what a broker leaves out is the cluster's"
    )

    def for_broker(self, broker_id: int) -> BrokerEncoderSettings:
        """Return a broker's settings, with the cluster's settings for those that are not set.

        A broker with a secret of its own never uses the cluster's old secret.
        """
        own = self.brokers.get(broker_id)
        if own is None:
            return self
        shared = self.model_dump(include=set(BrokerEncoderSettings.model_fields), exclude_none=True)
        if own.secret_file is not None:
            shared.pop("old_secret_file", None)
        return BrokerEncoderSettings(**shared | own.model_dump(exclude_none=True))

    @model_validator(mode="after")
    def _old_secrets_have_new_ones(self) -> PasswordEncoderSettings:
        if self.old_secret_file is not None and self.secret_file is None:
            raise ValueError("old_secret_file is set without secret_file")
        for broker_id, own in self.brokers.items():
            if own.old_secret_file is not None and own.secret_file is None and self.secret_file is None:
                raise ValueError(f"brokers.{broker_id}: old_secret_file is set without secret_file")
        return self


class PolicySettings(_SettingsGroup):
    """A policy plug-in (docs/policies.md)."""

    name: str = Field(min_length=1, description="Its name in the entry point group confplane.policies")
    options: dict[str, Any] = Field(default={}, description="What the plug-in is given; its own to define")


class SecureAclSettings(_SettingsGroup):
    """Nodes that only the brokers and this service may change, as with the brokers' ``zookeeper.set.acl=true``.

    Nodes that hold secrets, below /config/users and /config/brokers, are readable only by them, too.
    """

    identity: str = Field(
        pattern=r"^(sasl:\S+|x509:\S.*=.*\S|digest:[^:]+:[A-Za-z0-9+/]{27}=)$",
        description="Who the brokers are to ZooKeeper: 'sasl:kafka', 'x509:CN=broker,O=Acme' or 'digest:user:hash'",
    )
    credentials_file: Path = Field(
        description="A file that holds 'user:password': who this service is to ZooKeeper, in its scheme 'digest'."
        " Without, it could not change again what it created"
    )


class ClusterSettings(_SettingsGroup):
    """One Kafka cluster."""

    zookeeper: str = Field(
        min_length=1, description="host:port[,host:port...][/chroot], as in Kafka's zookeeper.connect"
    )
    zookeeper_acl: Annotated[
        Annotated[Literal["open"], Tag("open")] | Annotated[SecureAclSettings, Tag("secure")],
        # A tagged union, so that an error message is only about the intended alternative.
        Discriminator(lambda given: "open" if isinstance(given, str) else "secure"),
    ] = Field(
        default="open",
        description="The ACL of new znodes: 'open' to all, or the brokers' identity and this service's",
    )
    zookeeper_tls: ClientTlsSettings | None = Field(
        default=None, description="TLS to ZooKeeper, whose ports are then its secure ones (docs/authentication.md)"
    )
    kafka: KafkaSettings | None = Field(
        default=None,
        description="The brokers of a cluster without ZooKeeper, which `confplane target` can make this service observe"
        " (docs/kafka4.md)",
    )
    session_timeout_ms: int = Field(
        default=10_000,
        ge=1_000,
        le=120_000,
        description="The timeout of the ZooKeeper session; at most 45000 are requested",
    )
    max_packet: int = Field(default=900_000, ge=10_000, le=1_048_575, description="Largest transaction in bytes")
    notifications_max: int = Field(
        default=10_000, ge=10, le=37_000, description="Most config_change_ nodes while brokers are registered"
    )
    jute_maxbuffer: int = Field(
        default=0xFFFFF,
        ge=100_000,
        le=2_147_483_647,
        description="The brokers' jute.maxbuffer in bytes. While brokers are registered, no entity is created that"
        " would make a list of names longer than they can read",
    )
    client_configs_layout: ClientConfigsLayout | None = Field(
        default=None,
        description="Where client configs go in a cluster that has none yet. Must be chosen where brokers are"
        " registered; shared otherwise",
    )
    record_external_changes: bool = Field(
        default=True, description="Record external changes of the cluster's configs in the trail"
    )
    dynamic_client_configs: frozenset[str] = Field(
        default=frozenset(), description="Client configs that may be set besides KIP-649's three"
    )
    extra_keys: tuple[ExtraKeySettings, ...] = Field(
        default=(),
        description="Config keys besides those that Kafka defines, such as vendors' (docs/kafka4.md)",
    )
    group_min_session_timeout_ms: int = Field(
        default=6_000, description="The brokers' group.min.session.timeout.ms, a bound of client configs"
    )
    group_max_session_timeout_ms: int = Field(
        default=1_800_000, description="The brokers' group.max.session.timeout.ms, a bound of client configs"
    )
    password_encoder: PasswordEncoderSettings | None = Field(
        default=None,
        description="The brokers' password.encoder.* settings, to encode and decode sensitive broker configs"
        " (docs/secrets.md)",
    )
    server_properties: dict[
        Annotated[str, BeforeValidator(_as_text), Field(pattern=r"^(\*|0|[1-9][0-9]{0,9})$")], Path
    ] = Field(
        default={},
        description="The brokers' server.properties files by broker id, read at start; '*' is every broker not named",
    )
    policy_file: Path | None = Field(
        default=None, description="YAML rules that changes must keep to, read again when they change (docs/policies.md)"
    )
    policies: tuple[PolicySettings, ...] = Field(
        default=(), description="Policy plug-ins, asked in this order after the rules of policy_file"
    )

    @property
    def layout(self) -> ClientConfigsLayout | None:
        """The layout of client configs in a cluster that has none yet. None if it was not chosen."""
        return self.client_configs_layout if self.kafka is None else ClientConfigsLayout.SEPARATE

    def catalogs(self) -> Catalogs:
        """Return the cluster's definitions: Kafka's, and those of ``extra_keys``."""
        return Catalogs(definition for each in self.extra_keys for definition in each.definitions())

    @field_validator("extra_keys")
    @classmethod
    def _declared_once(cls, keys: tuple[ExtraKeySettings, ...]) -> tuple[ExtraKeySettings, ...]:
        check_distinct(keys)
        return keys

    @model_validator(mode="after")
    def _kafka_has_its_own_tree(self) -> ClusterSettings:
        if self.kafka is not None and self.client_configs_layout is ClientConfigsLayout.SHARED:
            raise ValueError(
                "client_configs_layout is shared, and kafka is set: the quotas then follow the Kafka cluster, which has"
                " no client configs, so they are kept in a tree of their own. Set it to separate, or leave it out"
            )
        return self


class PostgresSettings(_SettingsGroup):
    """The database of the trail."""

    dsn: SecretStr = Field(description="postgresql://user:password@host/database, the role that the service runs as")
    migration_dsn: SecretStr | None = Field(
        default=None, description="The role that owns the tables; for `confplane migrate`"
    )
    pool_size: int = Field(default=8, ge=2, le=100, description="Most connections of the process")


def _as_origin(value: object) -> str:
    """Return an origin as browsers write it.

    Raises:
        ValueError: The value is not one exact origin, in lower case and without its default port.
    """
    text = str(value)
    found = re.fullmatch(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:]+\])(:[1-9][0-9]{0,4})?", text)
    if found is None or found[3] == {"http": ":80", "https": ":443"}[found[1]]:
        raise ValueError(
            f"{value!a} is not an origin as browsers write it: scheme://host or scheme://host:port, in lower case,"
            " without a path, a wildcard or the scheme's default port"
        )
    return text


class HttpSettings(_SettingsGroup):
    """The settings of the listener."""

    host: str = Field(default="127.0.0.1", description="The address to listen on; '::' for all of IPv6")
    port: int = Field(default=8080, ge=0, le=65_535, description="The port to listen on; 0 for any free one")
    max_body_bytes: int = Field(
        default=8 * 1024 * 1024, ge=1024, description="The size of a request's body above which it is refused"
    )
    max_head_bytes: int = Field(
        default=65_536,
        ge=4_096,
        le=65_536,
        description="The size of a request's line and headers above which it is refused",
    )
    head_timeout_ms: int = Field(
        default=10_000, ge=100, le=60_000, description="Longest wait for a request's complete line and headers"
    )
    idle_timeout_ms: int = Field(
        default=75_000,
        ge=1_000,
        le=3_600_000,
        description="How long a connection is kept between requests. Use a longer time than the proxies before the"
        " service, so that a proxy never sends to a connection that is being closed",
    )
    max_connections: int = Field(
        default=12_000,
        ge=16,
        le=60_000,
        description="Open connections; above, those without a complete head are closed first",
    )
    request_deadline_ms: int = Field(
        default=10_000, ge=100, le=300_000, description="Longest time that a request may take"
    )
    drain_ms: int = Field(
        default=2_000,
        ge=0,
        le=60_000,
        description="How long a process that was told to stop goes on serving, not ready any more, until it takes no"
        " more connections",
    )
    cors_origins: tuple[Annotated[str, BeforeValidator(_as_origin)], ...] = Field(
        default=(),
        description="Exact origins whose pages may send requests and read answers, such as https://portal.example.com",
    )
    public_url: Annotated[str, BeforeValidator(_as_origin)] | None = Field(
        default=None,
        description="The origin at which clients reach the service. With it refusals point to"
        " /.well-known/oauth-protected-resource, which names the issuers of tokens",
    )
    trusted_proxies: tuple[Annotated[IPv4Network | IPv6Network, BeforeValidator(_as_network)], ...] = Field(
        default=(),
        description="Addresses or networks of proxies whose X-Forwarded-For names the client; it is ignored by default",
    )
    tls: TlsSettings | None = Field(default=None, description="TLS of the listener; plain HTTP without")
    client_certificate_header: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9-]{1,64}$",
        description="The header in which certificate_proxies pass the certificate of a client that they have verified",
    )
    certificate_proxies: tuple[Annotated[IPv4Network | IPv6Network, BeforeValidator(_as_network)], ...] = Field(
        default=(),
        description="Addresses or networks of proxies whose client_certificate_header is believed, and of nobody else",
    )
    ssl_principal_mapping_rules: str = Field(
        default="DEFAULT", description="As ssl.principal.mapping.rules of the brokers, for client certificates"
    )

    @property
    def accepts_certificates(self) -> bool:
        """True if clients may have certificates."""
        direct = self.tls is not None and self.tls.client_certificates != "none"
        return direct or self.client_certificate_header is not None

    @model_validator(mode="after")
    def _certificates(self) -> HttpSettings:
        if (self.client_certificate_header is None) != (not self.certificate_proxies):
            raise ValueError("client_certificate_header and certificate_proxies go together: set both of them, or none")
        return self


class TokenSettings(_SettingsGroup):
    """The lifetimes of API tokens."""

    default_days: int = Field(default=90, ge=1, le=3_650, description="Lifetime of a token that is created without one")
    longest_days: int = Field(
        default=365, ge=1, le=3_650, description="The longest lifetime of a token; it also bounds the default"
    )


class AccessSettings(_SettingsGroup):
    """The settings of tokens and grants."""

    tokens: TokenSettings = TokenSettings()

    max_age_s: int = Field(
        default=900,
        ge=10,
        le=86_400,
        description="How long tokens and grants are used as they were last read while Postgres is away; afterwards only"
        " the admin token is decided",
    )


class LimitSettings(_SettingsGroup):
    """The pace of one class of operations, for each principal and process."""

    per_second: float = Field(gt=0, le=1_000_000, description="Units a second")
    burst: int = Field(ge=1, le=10_000_000, description="Units that may be used at once after a pause")


class LimitOverrideSettings(_SettingsGroup):
    """Other limits for one principal or group; what is left out stays as it is."""

    read: LimitSettings | None = None
    bulk: LimitSettings | None = None
    write: LimitSettings | None = None
    admin: LimitSettings | None = None
    waiting: int | None = Field(default=None, ge=1, le=60_000)


class LimitsSettings(_SettingsGroup):
    """Limits of pace, for each principal and class of operations (docs/operations.md)."""

    enabled: bool = Field(default=True, description="False switches all limits off")
    read: LimitSettings = Field(
        default=LimitSettings(per_second=2_000, burst=10_000), description="Reads of one thing from memory, by request"
    )
    bulk: LimitSettings = Field(
        default=LimitSettings(per_second=10_000, burst=200_000),
        description="Lists, exports and queries of Postgres, by item",
    )
    write: LimitSettings = Field(default=LimitSettings(per_second=500, burst=20_000), description="Writes, by entity")
    admin: LimitSettings = Field(
        default=LimitSettings(per_second=10, burst=200), description="Freezes, tokens, grants and webhooks"
    )
    waiting: int = Field(
        default=1_000, ge=1, le=60_000, description="Requests of a principal that wait for a revision at one time"
    )
    overrides: dict[Annotated[str, Field(pattern=r"^(User|Group):.")], LimitOverrideSettings] = Field(
        default={},
        description="By 'User:<name>' or 'Group:<name>'. 'User:admin' limits the admin token, which has no limits else",
    )


def _as_allowed_host(value: object) -> str:
    """Return a host that webhooks may be sent to."""
    return check_allowed_host(str(value))


class WebhookSettings(_SettingsGroup):
    """Webhooks (docs/webhooks.md)."""

    key_file: Path | None = Field(
        default=None,
        description="A file whose first line is the key that seals URLs and signing secrets, one for all replicas."
        " Without it, webhooks are off",
    )
    allowed_hosts: frozenset[Annotated[str, BeforeValidator(_as_allowed_host)]] = Field(
        default=frozenset(),
        description="Only to these hosts, private ones included: names, addresses, or *.example.com for all names"
        " below. Without any, to all public addresses",
    )
    ca_file: Path | None = Field(
        default=None, description="PEM certificates of the authorities of receivers, instead of all public ones"
    )
    insecure_http: bool = Field(default=False, description="Allow http:// to a loopback address: for trials alone")


class Settings(BaseSettings):
    """All settings of a process. Read once, never changed."""

    model_config = SettingsConfigDict(
        env_prefix="CONFPLANE_", env_nested_delimiter="__", frozen=True, extra="forbid", env_ignore_empty=True
    )

    clusters: dict[Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,62})$")], ClusterSettings] = Field(min_length=1)
    postgres: PostgresSettings
    http: HttpSettings = HttpSettings()
    access: AccessSettings = AccessSettings()
    limits: LimitsSettings = LimitsSettings()
    admin_token_file: Path | None = Field(
        description="A file whose first line is the admin token, read again when it changes; null for no admin token"
    )
    console: bool = Field(default=True, description="Serve the web console, if console_key_file is set")
    console_key_file: Path | None = Field(
        default=None,
        description="A file whose first line is the key of the web console's sessions, one for all replicas. Without"
        " it, the console is off (docs/console.md)",
    )
    oidc: tuple[OidcSettings, ...] = Field(default=(), description="Issuers whose access tokens are accepted")
    webhooks: WebhookSettings = WebhookSettings()
    log_level: str = Field(
        default="info", pattern="^(debug|info|warning|error)$", description="debug, info, warning or error"
    )
    log_format: Literal["text", "json"] = Field(
        default="text",
        description="json has an object in each line, with the ids of the request, the change and the trace",
    )
    tracing: bool = Field(
        default=False,
        description="Send traces by OTLP over HTTP, as the standard variables OTEL_* say. Needs the package's extra"
        " otel (docs/operations.md)",
    )

    @model_validator(mode="after")
    def _sources(self) -> Settings:
        check_sources(self.oidc, certificates=self.http.accepts_certificates)
        return self

    @property
    def console_is_secure(self) -> bool:
        """True if cookies of the console are for TLS alone: everywhere except on loopback."""
        url = self.http.public_url
        host = self.http.host if url is None else urlsplit(url).hostname or ""
        return not (is_loopback(host) and (url is None or url.startswith("http://")))

    @model_validator(mode="after")
    def _console(self) -> Settings:
        public_url = self.http.public_url
        if self.console and self.console_key_file is not None and self.console_is_secure:
            if public_url is None:
                raise ValueError(
                    "console_key_file is set without http.public_url, the origin at which browsers reach it"
                )
            if not public_url.startswith("https://"):
                raise ValueError("console_key_file is set, and http.public_url is neither https nor a loopback address")
        if any(issuer.console_client_id is not None for issuer in self.oidc) and public_url is None:
            raise ValueError(
                "oidc: console_client_id is set without http.public_url, to which issuers send people back; set both"
            )
        return self

    @model_validator(mode="after")
    def _session_bounds(self) -> Settings:
        for name, cluster in self.clusters.items():
            if cluster.group_min_session_timeout_ms > cluster.group_max_session_timeout_ms:
                raise ValueError(f"clusters.{name}: group_min_session_timeout_ms is above group_max_session_timeout_ms")
        return self

    def cluster(self, name: str) -> ClusterSettings:
        """Return the settings of a cluster.

        Raises:
            NotFoundError: There is no such cluster; the text lists the existing ones.
        """
        try:
            return self.clusters[name]
        except KeyError:
            known = ", ".join(sorted(self.clusters))
            raise NotFoundError(f"The settings have no cluster {name!r}; they have: {known}") from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources: arguments, environment, file."""
        del dotenv_settings, file_secret_settings
        sources: list[PydanticBaseSettingsSource] = [init_settings, env_settings]
        path = os.environ.get("CONFPLANE_SETTINGS_FILE")
        if path:
            if not Path(path).is_file():
                raise FileNotFoundError(f"CONFPLANE_SETTINGS_FILE names {path}, which is not a file")
            sources.append(YamlConfigSettingsSource(settings_cls, yaml_file=path))
        return tuple(sources)
