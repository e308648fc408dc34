"""Settings of external identities: the issuers of OIDC access tokens, and the TLS of the listener."""

from __future__ import annotations

from ipaddress import ip_address
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SHARED_HOSTS: Final = frozenset(
    {
        "accounts.google.com",
        "agent.buildkite.com",
        "app.terraform.io",
        "gitlab.com",
        "oidc.circleci.com",
        "oidc.codefresh.io",
        "oidc.vercel.com",
        "token.actions.githubusercontent.com",
    }
)
"""Hosts of issuers that serve everybody: a valid token of theirs proves nothing until its claims are compared."""
_REGISTERED: Final = frozenset({"iss", "aud", "exp", "iat", "nbf", "jti"})
"""Claims that every token of an issuer may have, and that are checked anyway."""

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Algorithms of signatures with a public and a private key. The algorithm ``none`` and algorithms with a shared secret
are not supported."""
Scalar = StrictStr | StrictBool | StrictInt
"""A value of a claim that can be compared."""


class SettingsGroup(BaseModel):
    """The base class of all groups of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OidcSettings(SettingsGroup):
    """An issuer of OIDC access tokens (docs/authentication.md)."""

    issuer: str = Field(max_length=500, description="The issuer, exactly as the claim iss of its tokens has it")
    audiences: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        min_length=1, description="Names of this service to the issuer; a token's claim aud has one of them"
    )
    jwks_uri: str | None = Field(
        default=None, description="Address of the issuer's keys. Without, the issuer's discovery document names it"
    )
    ca_file: Path | None = Field(
        default=None, description="PEM certificates of the authorities that the issuer's own is from, instead of all"
    )
    insecure_http: bool = Field(default=False, description="Allow http:// to a loopback address: for trials alone")
    algorithms: tuple[Algorithm, ...] = Field(
        default=("RS256", "ES256"), min_length=1, description="Algorithms that a token may be signed with"
    )
    clock_skew_s: int = Field(default=30, ge=0, le=300, description="By how much the issuer's clock may differ")
    max_lifetime_s: int = Field(
        default=86_400, ge=60, le=2_592_000, description="Longest time between a token's issue and its end"
    )
    shared: bool = Field(
        default=False,
        description="The issuer serves others too, so that claims are required. Always so for well-known CI issuers",
    )
    required_claims: dict[str, Scalar | tuple[Scalar, ...]] = Field(
        default={}, description="Claims that a token must have, each with its value or its allowed values"
    )
    principal_claim: str = Field(default="sub", min_length=1, description="The claim that names the principal")
    groups_claim: str | None = Field(default=None, min_length=1, description="The claim with the names of groups")
    groups_required: StrictBool = Field(
        default=False, description="Tokens without groups_claim are refused; an empty list is a claim"
    )
    prefix: str = Field(
        default="",
        max_length=64,
        pattern=r"^[A-Za-z0-9._:/#|@-]*$",
        description="What the names of the issuer's principals and groups begin with, as in github:",
    )
    kafka_users: bool = Field(
        default=False, description="The issuer's principals are Kafka's users, and have no prefix. For one issuer alone"
    )
    console_client_id: str | None = Field(
        default=None,
        min_length=1,
        description="The public client of the web console at this issuer: people sign in there (docs/console.md)",
    )
    console_scope: str = Field(
        default="openid", pattern=r"^openid( |$)", description="Scopes that the console asks for"
    )
    console_resource: str | None = Field(
        default=None, min_length=1, description="The resource that the console asks for, at issuers that need one"
    )

    @property
    def is_shared(self) -> bool:
        """True if the issuer also serves other organizations."""
        return self.shared or urlsplit(self.issuer).hostname in SHARED_HOSTS

    @model_validator(mode="after")
    def _addresses(self) -> OidcSettings:
        check_url("issuer", self.issuer, insecure_http=self.insecure_http)
        if urlsplit(self.issuer).query:
            raise ValueError("issuer has a query; an issuer has none")
        if self.jwks_uri is not None:
            check_url("jwks_uri", self.jwks_uri, insecure_http=self.insecure_http)
        return self

    @model_validator(mode="after")
    def _claims(self) -> OidcSettings:
        if useless := sorted(_REGISTERED & set(self.required_claims)):
            raise ValueError(f"required_claims has {', '.join(useless)}, which the service checks by itself; remove it")
        if any(value == () for value in self.required_claims.values()):
            raise ValueError("required_claims has a claim without an allowed value; no token could fulfil it")
        if self.groups_required and self.groups_claim is None:
            raise ValueError("groups_required is set without groups_claim; name the claim that has the groups")
        if self.is_shared and not self.required_claims:
            raise ValueError(
                "required_claims is empty, and the issuer serves everybody: any of its users could call this service;"
                " name claims that only your own tokens have, such as repository_owner or namespace_id"
            )
        return self

    @model_validator(mode="after")
    def _prefixes(self) -> OidcSettings:
        if self.kafka_users == bool(self.prefix):
            raise ValueError(
                "prefix is set together with kafka_users: Kafka's users have no prefix; leave one of them out"
                if self.kafka_users
                else "prefix is not set; give the issuer's principals one of their own, such as 'github:', or set"
                " kafka_users where they are Kafka's users"
            )
        return self


class TlsSettings(SettingsGroup):
    """TLS of the listener. The files are read again when they change."""

    certificate_file: Path = Field(description="The server's certificate and those between it and the root, in PEM")
    key_file: Path = Field(description="The private key of the certificate, in PEM and not encrypted")
    client_certificates: Literal["none", "optional", "required"] = Field(
        default="none", description="Client certificates that are asked for; who gives one need not give a token"
    )
    client_ca_file: Path | None = Field(
        default=None, description="The authorities of client certificates, in PEM; for nothing else than that"
    )
    min_version: Literal["1.2", "1.3"] | None = Field(
        default=None, description="The lowest version of TLS: 1.2, and 1.3 where client certificates are asked for"
    )

    @model_validator(mode="after")
    def _authorities(self) -> TlsSettings:
        asks = self.client_certificates != "none"
        if asks == (self.client_ca_file is None):
            raise ValueError("client_ca_file and client_certificates go together: set both of them, or none")
        if asks and self.min_version == "1.2":
            raise ValueError(
                "min_version is 1.2, where a resumed session would carry a client past authorities that were replaced;"
                " with client certificates it is 1.3"
            )
        return self

    @property
    def lowest(self) -> Literal["1.2", "1.3"]:
        """The lowest version."""
        return self.min_version or ("1.2" if self.client_certificates == "none" else "1.3")

    @property
    def files(self) -> tuple[Path, ...]:
        """All files."""
        return tuple(file for file in (self.certificate_file, self.key_file, self.client_ca_file) if file is not None)


def check_url(name: str, url: str, *, insecure_http: bool) -> None:
    """Check the address of an issuer.

    Args:
        name: The name of the setting or member that has it.
        url: The address.
        insecure_http: Allow plain HTTP to this machine.

    Raises:
        ValueError: The address is not an absolute https URL, or has a password or a fragment.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"{name} is not a URL") from None
    if not host or parts.username is not None or parts.fragment or not url.isprintable() or " " in url:
        raise ValueError(f"{name} is not a URL of the form https://host/path, without user and fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and insecure_http and is_loopback(host)):
        raise ValueError(
            f"{name} is not an https URL; http is possible for a loopback address alone, with insecure_http: true"
        )


def check_sources(issuers: Sequence[OidcSettings], *, certificates: bool) -> None:
    """Check that no two sources of identities can make the same principal.

    Args:
        issuers: The issuers.
        certificates: True if client certificates are accepted, whose principals are Kafka's users.

    Raises:
        ValueError: Two issuers are the same, prefixes overlap, or two sources have Kafka's users.
    """
    for issuer in issuers:
        if certificates and issuer.kafka_users:
            raise ValueError(
                f"oidc: {issuer.issuer} has kafka_users, and client certificates make Kafka's users too, so both could"
                " result in the same principal. Set a prefix for the issuer."
            )
    if twice := _twice(issuer.issuer for issuer in issuers):
        raise ValueError(f"oidc: the issuer {twice} is listed twice")
    for one, other in combinations(issuers, 2):
        if one.kafka_users and other.kafka_users:
            raise ValueError(
                f"oidc: {one.issuer} and {other.issuer} both have kafka_users, so both could make the same principal;"
                " give one of them a prefix"
            )
        shorter, longer = sorted((one.prefix, other.prefix), key=len)
        if shorter and longer.startswith(shorter):
            raise ValueError(
                f"oidc: the prefixes {one.prefix!r} of {one.issuer} and {other.prefix!r} of {other.issuer} overlap, so"
                " both could make the same principal; choose prefixes none of which begins with another"
            )


def _twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def is_loopback(host: str) -> bool:
    """Return True for a name or an address of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
