"""Authentication setup: builds the sources of identities from the settings, with their background work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from confplane.security.authenticator import AdminToken, Authenticator, Certificates
from confplane.security.mapping import PrincipalMapper
from confplane.services.ports.access import AccessT
from confplane.services.watched_files import FileWatch, WatchedFiles
from confplane.settings import UnusableSettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confplane.security.authenticator import TokenAuthenticator
    from confplane.security.oidc.provider import Provider
    from confplane.services.ports.access import AccessSource
    from confplane.settings import Settings


class AuthenticationSetup(Generic[AccessT]):
    """Builds the authenticator of a process.

    Args:
        settings: The settings.
        api_tokens: Authenticates API tokens.
        control: Returns the access of an identity.
        files: Files of other parts that are reloaded when they change.

    Attributes:
        authenticator: Authenticates requests.
        background: Work to start and stop with the process.
        providers: The issuers of OIDC access tokens.

    Raises:
        OSError: The file of the admin token can't be read.
        ValueError: The admin token is too short.
        UnusableSettingsError: The rules for certificates, or an issuer's authorities, can't be used.
    """

    def __init__(
        self,
        settings: Settings,
        api_tokens: TokenAuthenticator,
        control: AccessSource[AccessT],
        files: Sequence[WatchedFiles] = (),
    ) -> None:
        authenticators, watched = [api_tokens], list(files)
        self.providers: list[Provider] = []
        if settings.oidc:
            # The import of httpx and PyJWT takes a tenth of the startup time, and a service without issuers does not
            # need it.
            from confplane.security.oidc.provider import Provider  # noqa: PLC0415
            from confplane.security.oidc.tokens import OidcTokens  # noqa: PLC0415

            self.providers += map(Provider, settings.oidc)
            authenticators.append(OidcTokens(self.providers))
        path = settings.admin_token_file
        if path is not None:
            admin = AdminToken.from_file(path)
            authenticators.append(admin)
            watched.append(WatchedFiles("file of the admin token", [path], lambda: admin.reload(path)))
        self.authenticator = Authenticator(authenticators, control, _certificates(settings))
        self.background: list[Provider | FileWatch] = [*self.providers, FileWatch(watched)]


def _certificates(settings: Settings) -> Certificates | None:
    if not settings.http.accepts_certificates:
        return None
    try:
        mapper = PrincipalMapper(settings.http.ssl_principal_mapping_rules)
    except ValueError as error:
        raise UnusableSettingsError(f"http.ssl_principal_mapping_rules: {error}") from None
    return Certificates(mapper, [issuer.prefix for issuer in settings.oidc])
