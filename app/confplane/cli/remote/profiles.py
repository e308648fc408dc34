"""Profiles: services by name, with the cluster and the credentials of their commands.

The file is ``$CONFPLANE_PROFILES``, or ``confplane/profiles.yaml`` below ``$XDG_CONFIG_HOME`` (``~/.config``)::

    current: production
    profiles:
      production:
        url: https://confplane.example.com
        cluster: payments
        token_command: [vault, kv, get, -field=token, secret/confplane]
      portal:
        url: https://confplane.example.com
        token_file: /run/secrets/confplane-token
        ca_file: /etc/ssl/company.pem
      people:
        url: https://confplane.example.com
        client_id: confplane-cli

``--profile`` or ``CONFPLANE_PROFILE`` selects a profile. Otherwise the command uses, in this order: the service of
``CONFPLANE_URL``, the current profile, the service that ``confplane dev`` runs in this directory. ``CONFPLANE_CLUSTER``
replaces the cluster, and ``CONFPLANE_TOKEN_FILE`` or ``CONFPLANE_TOKEN`` the token of any of them. No token is ever in
the file or on a command line.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from confplane.domain.errors import InvalidRequestError
from confplane.files import atomic_write

_FILE_VARIABLE: Final = "CONFPLANE_PROFILES"
_DEV_DIRECTORY: Final = Path(".confplane")
DEFAULT_CLUSTER: Final = "default"


class ProfileError(Exception):
    """A profile is absent or can't be used. The text has the place and the solution."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A service, a cluster of the service, and the credentials of requests.

    At most one of ``token_file``, ``token_command`` and ``client_id`` is set; none if the service requires a client
    certificate or nothing.
    """

    url: str
    cluster: str = DEFAULT_CLUSTER
    token_file: Path | None = None
    token_command: tuple[str, ...] | None = None
    """A program and its arguments; the program prints the token."""
    client_id: str | None = None
    """The client of ``confplane login`` at the issuer."""
    issuer: str | None = None
    """The issuer of a login; None for the only one that the service names."""
    scope: str | None = None
    """The scopes that a login requests; None for those of OpenID Connect that give a refresh token."""
    resource: str | None = None
    """The resource that a login names (RFC 8707), for issuers that require one."""
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    token: str | None = field(default=None, repr=False)
    """The token itself, which only the environment gives."""
    name: str | None = field(default=None, compare=False)
    """The name in the file; None if the profile comes from the environment or from ``confplane dev``."""

    @property
    def token_source(self) -> str:
        """Description of the token's source, never the token itself."""
        if self.token is not None:
            return "CONFPLANE_TOKEN"
        if self.token_file is not None:
            return f"the file {self.token_file}"
        if self.token_command is not None:
            return f"the command {self.token_command[0]}"
        if self.client_id is not None:
            return f"the login of the client {self.client_id}"
        return "none"

    def to_json(self) -> dict[str, Any]:
        """Return the members that the file keeps."""
        kept: dict[str, Any] = {}
        for name in MEMBERS:
            value = getattr(self, name)
            if value is not None and (name, value) != ("cluster", DEFAULT_CLUSTER):
                kept[name] = list(value) if isinstance(value, tuple) else str(value)
        return kept


MEMBERS: Final = tuple(each.name for each in fields(Profile) if each.name not in {"name", "token"})
"""The members of a profile in the file."""
SOURCES: Final = ("token_file", "token_command", "client_id")
"""The members that name the source of the token."""


def file() -> Path:
    """Return the path of the file of profiles, which may be absent."""
    if (named := os.environ.get(_FILE_VARIABLE)) is not None:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "confplane" / "profiles.yaml"


@dataclass(frozen=True, slots=True)
class Profiles:
    """The content of the file."""

    current: str | None
    named: dict[str, Profile]

    @classmethod
    def read(cls) -> Profiles:
        """Read the file. Without a file there are no profiles.

        Raises:
            ProfileError: The file can't be read, or has members that no profile has.
        """
        path = file()
        if not path.exists():
            return cls(None, {})
        from confplane.strict_yaml import read_document  # noqa: PLC0415 - pipelines often have no file

        try:
            with path.open("rb") as stream:
                document = read_document(stream, str(path))
        except OSError as error:
            raise ProfileError(f"{path} can't be read: {error.strerror}") from None
        except InvalidRequestError as error:
            raise ProfileError(str(error)) from None
        if document is None:
            return cls(None, {})
        content = document.plain()
        if not isinstance(content, dict) or content.keys() - {"current", "profiles"}:
            raise ProfileError(f"{path} has other members than `current` and `profiles`")
        members = content.get("profiles") or {}
        if not isinstance(members, dict):
            raise ProfileError(f"{path}: profiles is not a map of names to profiles")
        return cls(content.get("current"), {name: _profile(path, name, each) for name, each in members.items()})

    def named_or_raise(self, name: str) -> Profile:
        """Return a profile.

        Raises:
            ProfileError: There is no such profile; the text lists the names of all profiles.
        """
        if name not in self.named:
            known = ", ".join(self.named) or "none"
            raise ProfileError(f"There is no profile {name!r} in {file()}; there are: {known}")
        return self.named[name]

    def write(self) -> None:
        """Replace the file atomically; its directory is created if needed.

        Raises:
            ProfileError: The file can't be written.
        """
        import yaml  # noqa: PLC0415 - as above

        from confplane.strict_yaml import Dumper  # noqa: PLC0415 - as above

        path = file()
        content = {"current": self.current, "profiles": {name: each.to_json() for name, each in self.named.items()}}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as stream:
                yaml.dump(content, stream, Dumper=Dumper, sort_keys=False, allow_unicode=True)
        except OSError as error:
            raise ProfileError(f"{path} can't be written: {error.strerror}") from None


def choose_profile(name: str | None, cluster: str | None) -> Profile:
    """Return the profile of a command.

    Args:
        name: The option ``--profile``; None for ``$CONFPLANE_PROFILE``, or the current profile of the file.
        cluster: The option ``--cluster``; None for the cluster of the environment or of the profile.

    Raises:
        ProfileError: There is no such profile, no service is named at all, or the environment has two tokens.
    """
    name = name or os.environ.get("CONFPLANE_PROFILE")
    url = os.environ.get("CONFPLANE_URL")
    if name is None and url is not None:
        check_url(url, "CONFPLANE_URL")
        found = Profile(url)  # without the credentials of a profile, which are for another service
    else:
        found = _named(Profiles.read(), name) or _of_dev() or _nothing()
    token, token_file = os.environ.get("CONFPLANE_TOKEN"), os.environ.get("CONFPLANE_TOKEN_FILE")
    if token is not None and token_file is not None:
        raise ProfileError("CONFPLANE_TOKEN and CONFPLANE_TOKEN_FILE are both set; unset one of them")
    if token is not None or token_file is not None:
        path = None if token_file is None else Path(token_file)
        found = replace(found, token=token, token_file=path, token_command=None, client_id=None)
    return replace(found, cluster=cluster or os.environ.get("CONFPLANE_CLUSTER") or found.cluster)


def check_url(url: str, where: str) -> None:
    """Refuse a URL that no service can have; ``where`` names its source.

    Raises:
        ProfileError: The URL is not http or https, has no host, or has a user name, which would be a credential.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        usable = False
    if not usable:
        raise ProfileError(
            f"{where}: {url!r} is not a valid service URL. Use for example https://confplane.example.com."
        )


def _nothing() -> NoReturn:
    raise ProfileError(
        "No service is named. Set CONFPLANE_URL and CONFPLANE_TOKEN_FILE or CONFPLANE_TOKEN, or write a profile with"
        f" `confplane profiles set NAME --url URL`; the file is {file()}"
    )


def _named(profiles: Profiles, name: str | None) -> Profile | None:
    name = name or profiles.current
    return None if name is None else profiles.named_or_raise(name)


def _of_dev() -> Profile | None:
    """Return the service that ``confplane dev`` runs in this directory."""
    try:
        url = json.loads((_DEV_DIRECTORY / "endpoints.json").read_text("utf-8")).get("url")
    except (OSError, ValueError):
        return None
    return None if url is None else Profile(url, token_file=_DEV_DIRECTORY / "admin-token")


def _profile(path: Path, name: str, members: object) -> Profile:
    where = f"{path}: profiles.{name}"
    if not isinstance(members, dict) or not isinstance(members.get("url"), str):
        raise ProfileError(f"{where} has no url")
    if unknown := members.keys() - set(MEMBERS):
        listed = ", ".join(sorted(map(str, unknown)))
        raise ProfileError(f"{where} has the unknown members {listed}; known: {', '.join(sorted(MEMBERS))}")
    given: dict[str, Any] = {member: value for member, value in members.items() if value is not None}
    command = given.pop("token_command", None)
    if command is not None and not (
        isinstance(command, list) and command and all(isinstance(each, str) for each in command)
    ):
        raise ProfileError(f"{where}.token_command is not a list of a program and its arguments")
    for member, value in given.items():
        if not isinstance(value, str):
            raise ProfileError(f"{where}.{member} is not a text")
        if member.endswith("_file"):
            given[member] = Path(value).expanduser()
    sources = [each for each in SOURCES if members.get(each) is not None]
    if len(sources) > 1:
        raise ProfileError(f"{where} has both {' and '.join(sources)}")
    check_url(given["url"], f"{where}.url")
    return Profile(**given, token_command=None if command is None else tuple(command), name=name)
