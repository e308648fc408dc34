"""``confplane login`` and ``confplane logout``: get and revoke a person's tokens at the issuer of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from confplane.cli.remote import logins
from confplane.cli.remote.credentials import device_login
from confplane.cli.remote.logins import StoredLogin
from confplane.cli.remote.profiles import ProfileError
from confplane.cli.remote.session import DONE, FAILED
from confplane.client.device import LoginError

if TYPE_CHECKING:
    from confplane.cli.remote.profiles import Profile

SCOPE: Final = "openid offline_access"
"""The scopes of OpenID Connect that give a refresh token."""


def login(profile: Profile) -> int:
    """Show a page and a code, wait until the person has confirmed, store the tokens, and return the exit code.

    Raises:
        ProfileError: The profile has no client of an issuer.
        LoginError: The login failed.
    """
    client_id = _client_of(profile)
    with device_login(profile) as speaker:
        issuer = speaker.issuer(_chosen(profile, speaker.issuers_of(profile.url)))
        device = speaker.begin(issuer, client_id, scope=profile.scope or SCOPE, resource=profile.resource)
        typer.echo(f"Open {device.page_with_code or device.page}\nand confirm the code {device.user_code}", err=True)
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
    typer.echo(f"Logged in to {profile.url}; `confplane whoami` shows your principal and your grants", err=True)
    return DONE


def logout(profile: Profile) -> int:
    """Revoke the tokens at the issuer, remove them here, and return the exit code: 1 if the issuer did not revoke them.

    Raises:
        ProfileError: The profile has no client of an issuer.
    """
    client_id = _client_of(profile)
    kept = logins.read(profile)
    logins.remove(profile)
    if kept is None:
        typer.echo(f"You were not logged in to {profile.url}", err=True)
        return DONE
    try:
        if kept.revocation_endpoint is not None:
            with device_login(profile) as speaker:
                speaker.revoke(kept.revocation_endpoint, client_id, kept.refresh or kept.access)
    except LoginError as error:
        typer.echo(f"The tokens are removed here, and may still count at the issuer: {error}", err=True)
        return FAILED
    typer.echo(f"Logged out of {profile.url}", err=True)
    return DONE


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
