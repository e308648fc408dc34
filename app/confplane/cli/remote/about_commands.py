"""The commands about the service and the caller: ``whoami``, ``clusters``, ``login`` and ``logout``."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.output import echo, emit, is_json, print_error, print_json, print_table
from confplane.cli.remote import logins, profiles, session
from confplane.cli.remote.logins import StoredLogin
from confplane.cli.remote.options import READ_CODES, AsJson, ClusterName, ProfileName, served
from confplane.cli.remote.profiles import ProfileError
from confplane.cli.remote.session import DONE, FAILED
from confplane.client import ClientError
from confplane.domain.texts import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.cli.remote.profiles import Profile
    from confplane.client import AsyncConfplane


commands = CommandGroup()


@commands.command(epilog=f"Example:\n\n    confplane whoami --profile production\n\n{READ_CODES}")
def whoami(*, as_json: AsJson = False, cluster: ClusterName = None, profile: ProfileName = None) -> None:
    """Show the principal of the token, the source of the token, and the grants that apply."""

    def work() -> int:
        chosen = profiles.choose_profile(profile, cluster)
        return session.run_with_client(profile, cluster, lambda client: _whoami(client, chosen))

    raise typer.Exit(session.code_of(work))


@commands.command(epilog=f"Example:\n\n    confplane clusters --json\n\n{READ_CODES}")
@served(as_lines=True, in_cluster=False)
async def clusters(client: AsyncConfplane) -> None:
    """List the clusters of the service, each with its state and its warnings."""
    found = (await client.clusters.list()).body["items"]
    if is_json():
        for item in found:
            print_json(item)
        return
    print_table(("CLUSTER", "STATE", "REVISION", "WARNINGS"), [_cluster(each) for each in found])


@commands.command(
    epilog="Examples:\n\n"
    "    confplane profiles set people --url https://confplane.example.com --client-id confplane-cli\n\n"
    "    confplane login --profile people\n\n"
    "Exit codes: 0 logged in; 1 the service or the issuer refused or did not answer; 2 the profile is not valid."
)
def login(*, as_json: AsJson = False, profile: ProfileName = None) -> None:
    """Log in at the issuer of the service, in any browser, and store the tokens.

    The profile names the client of the issuer. The tokens are stored in a file that only you can read, and are renewed
    for as long as the issuer allows it.
    """
    raise typer.Exit(session.code_of(lambda: _login(profiles.choose_profile(profile, None))))


@commands.command(
    epilog="Example:\n\n    confplane logout --profile people\n\n"
    "Exit codes: 0 logged out; 1 the tokens are removed here, but not revoked at the issuer; 2 the profile is"
    " not valid."
)
def logout(*, as_json: AsJson = False, profile: ProfileName = None) -> None:
    """Revoke the tokens of a login at the issuer, and remove them."""
    raise typer.Exit(session.code_of(lambda: _logout(profiles.choose_profile(profile, None))))


async def _whoami(client: AsyncConfplane, profile: Profile) -> int:
    """Print the principal of a profile's token and its grants, and return the exit code."""
    caller = (await client.service.whoami()).body
    if is_json():
        print_json(caller)
        return DONE
    facts = {
        "principal": caller["principal"],
        "groups": ", ".join(caller["groups"]) or None,
        "on behalf of": caller["onBehalfOf"],
        "owner": caller["owner"],
        "authenticated by": caller["authenticatedBy"],
        "token from": profile.token_source,
        "token id": caller["tokenId"],
        "expires": caller["expiresAt"],
        "limits": _limits(caller["narrowing"]),
        "service": profile.url,
        "cluster": profile.cluster,
    }
    print_table(("CALLER", ""), [(name, str(value)) for name, value in facts.items() if value is not None])
    if grants := caller["grants"]:
        print_table(("PRINCIPAL", "PERMISSION", "RIGHT", "RESOURCE", "CLUSTER"), [_grant(each) for each in grants])
    return DONE


def _limits(narrowing: Mapping[str, Any] | None) -> str | None:
    """Return the limits of a credential in words, or None if it has no limits."""
    if narrowing is None:
        return None
    parts = ["only reads"] if narrowing["readOnly"] else []
    parts += [f"{name}: {', '.join(narrowing[name])}" for name in ("clusters", "operations") if narrowing[name]]
    return "; ".join(parts)


def _grant(grant: Mapping[str, Any]) -> tuple[str, ...]:
    name = grant["name"] or ""
    pattern = f"{name}*" if grant["patternType"] == "prefixed" else name
    resource = " ".join(filter(None, (grant["resourceType"], pattern)))
    granted = grant["operation"] or f"the role {grant['role']}"
    return grant["principal"], grant["permission"], granted, resource or "all of the role", grant["cluster"] or "all"


def _cluster(cluster: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a row of the table; of a cluster in which the caller may describe nothing only the name is known."""
    if "mirror" not in cluster:
        return cluster["name"], "not visible to you", "-", ""
    return cluster["name"], _state(cluster), cluster["revision"], "; ".join(cluster["warnings"])


def _state(cluster: Mapping[str, Any]) -> str:
    """Return the state of a cluster in words: its session, its copy of the configs, its freeze."""
    parts = [cluster["session"] if cluster["session"] != "connected" else cluster["mirror"]]
    if cluster["frozen"] is not None:
        parts.append(f"frozen: {cluster['frozen']}")
    return ", ".join(parts)


SCOPE: Final = "openid offline_access"
"""The scopes of OpenID Connect that give a refresh token."""


def _login(profile: Profile) -> int:
    """Show a page and a code, wait until the person has confirmed, store the tokens, and return the exit code.

    Raises:
        ProfileError: The profile has no client of an issuer.
        LoginError: The login failed.
    """
    from confplane.cli.remote.credentials import device_login

    client_id = _client_of(profile)
    with device_login(profile) as speaker:
        issuer = speaker.issuer(_chosen(profile, speaker.issuers_of(profile.url)))
        device = speaker.begin(issuer, client_id, scope=profile.scope or SCOPE, resource=profile.resource)
        echo(f"Open {device.page_with_code or device.page}\nand confirm the code {device.user_code}", err=True)
        tokens = speaker.wait(issuer, client_id, device, resource=profile.resource)
    logins.write(
        profile,
        StoredLogin(
            url=profile.url,
            client_id=client_id,
            issuer=issuer.url,
            token_endpoint=issuer.token_endpoint,
            revocation_endpoint=issuer.revocation_endpoint,
            resource=profile.resource,
            access=tokens.access,
            expires_at=tokens.expires_at,
            refresh=tokens.refresh,
        ),
    )
    emit(url=profile.url, issuer=issuer.url, expiresAt=_rfc3339(tokens.expires_at))
    echo(f"Logged in to {profile.url}; `confplane whoami` shows your principal and your grants", err=True)
    return DONE


def _logout(profile: Profile) -> int:
    """Revoke the tokens at the issuer, remove them here, and return the exit code: 1 if the issuer did not revoke them.

    Raises:
        ProfileError: The profile has no client of an issuer.
    """
    client_id = _client_of(profile)
    from confplane.cli.remote.credentials import device_login

    kept = logins.remove(profile)
    if kept is None:
        echo(f"You were not logged in to {profile.url}", err=True)
        return DONE
    try:
        if kept.revocation_endpoint is not None:
            with device_login(profile) as speaker:
                speaker.revoke(kept.revocation_endpoint, client_id, kept.refresh or kept.access)
    except ClientError as error:
        return print_error(f"The tokens are removed here, but may still be valid at the issuer: {error}", FAILED)
    emit(url=profile.url)
    echo(f"Logged out of {profile.url}", err=True)
    return DONE


def _rfc3339(seconds: float | None) -> str | None:
    return None if seconds is None else rfc3339(datetime.fromtimestamp(seconds, timezone.utc))


def _client_of(profile: Profile) -> str:
    if profile.client_id is None:
        raise ProfileError(
            "The profile has no client of an issuer: write one with `confplane profiles set NAME --url URL --client-id"
            " ID`"
        )
    return profile.client_id


def _chosen(profile: Profile, issuers: tuple[str, ...]) -> str:
    if profile.issuer is not None:
        if profile.issuer not in issuers:
            raise ProfileError(f"{profile.url} accepts no tokens of {profile.issuer}, but of: {', '.join(issuers)}")
        return profile.issuer
    if len(issuers) > 1:
        raise ProfileError(f"{profile.url} has several issuers; name one in the profile: {', '.join(issuers)}")
    return issuers[0]
