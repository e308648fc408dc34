"""The commands of ``confplane tokens`` and ``confplane grants`` that use Postgres instead of the API."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from confplane.cli import callers
from confplane.cli.output import echo, is_json, print_json
from confplane.domain.access.identities import CredentialNarrowing
from confplane.services.access_admin.tokens import NewToken
from confplane.services.access_admin.views import grant_view, token_view
from confplane.wiring import open_access

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from confplane.services.access_admin.grants import NewGrant
    from confplane.services.changes.callers import Caller
    from confplane.settings import Settings


async def create_token(
    settings: Settings, body: Mapping[str, Any], lifetime_s: int | None, caller: Caller
) -> dict[str, Any]:
    """Create a token, and return it as the API does.

    Args:
        settings: The service's settings.
        body: The token in the form of the API.
        lifetime_s: The token's lifetime by the clock of Postgres; None for the default.
        caller: The operator.
    """
    limits = body["narrowing"]
    narrowing = None
    if limits is not None:
        within = (frozenset(limits[name]) if name in limits else None for name in ("clusters", "operations"))
        narrowing = CredentialNarrowing(limits.get("readOnly", False), *within)
    async with open_access(settings) as services:
        expires_at = None if lifetime_s is None else services.tokens.now + timedelta(seconds=lifetime_s)
        wanted = NewToken(body["principal"], tuple(body["groups"]), body["owner"], body["note"], expires_at, narrowing)
        made = await services.tokens.create(wanted, caller)
    return token_view(made.token, made.token.created_at) | {"token": made.text}


async def create_grant(settings: Settings, wanted: NewGrant, caller: Caller) -> tuple[dict[str, Any], bool]:
    """Create a grant, and return it as the API does, with True if it is new."""
    async with open_access(settings) as services:
        stored, is_new = await services.grants.create(wanted, caller)
    return grant_view(stored), is_new


@callers.command("Not confirmed")
async def confirm_tokens(settings: Settings, caller: Caller) -> int:
    """Accept the tokens of a restored Postgres."""
    async with open_access(settings) as services:
        confirmed = await services.tokens.confirm(caller)
    if is_json():
        print_json({"confirmed": confirmed})
    elif confirmed:
        echo("The tokens are confirmed; every process accepts them within two seconds")
    else:
        echo("No tokens are waiting for a confirmation; nothing to do")
    return callers.DONE


@callers.command("Not revoked")
async def invalidate_tokens(settings: Settings, before: datetime, caller: Caller) -> int:
    """Revoke the tokens created before a time."""
    async with open_access(settings) as services:
        count = await services.tokens.invalidate(before, caller)
    if is_json():
        print_json({"revoked": count})
    else:
        revoked = callers.pluralize(count, "token is", "tokens are")
        echo(f"{revoked} revoked; every process rejects them within two seconds")
    return callers.DONE
