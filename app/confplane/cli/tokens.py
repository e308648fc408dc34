"""``confplane tokens``: create, list, revoke and rotate API tokens, on Postgres directly."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import typer

from confplane.cli import callers
from confplane.cli.columns import columns
from confplane.files import atomic_write
from confplane.services.access_admin.pagination import read_all
from confplane.services.access_admin.views import token_view
from confplane.wiring import open_access

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path
    from typing import TextIO
    from uuid import UUID

    from confplane.services.access_admin.tokens import CreatedToken, NewToken
    from confplane.services.changes.callers import Caller
    from confplane.settings import Settings


def create(settings: Settings, wanted: NewToken, lifetime_s: int | None, output: Path | None, caller: Caller) -> int:
    """Create a token, write its text, and return the exit code."""
    return _run(_create(settings, wanted, lifetime_s, output, caller), "Not created", output)


def rotate(
    settings: Settings, token_id: UUID, overlap_s: int, lifetime_s: int | None, output: Path | None, caller: Caller
) -> int:
    """Replace a token, write the text of the new one, and return the exit code."""
    return _run(_rotate(settings, token_id, overlap_s, lifetime_s, output, caller), "Not rotated", output)


async def _create(
    settings: Settings, wanted: NewToken, lifetime_s: int | None, output: Path | None, caller: Caller
) -> int:
    with _open_output(output) as file:
        async with open_access(settings) as services:
            if lifetime_s is not None:
                wanted = replace(wanted, expires_at=services.tokens.now + timedelta(seconds=lifetime_s))
            made = await services.tokens.create(wanted, caller)
        _write(made, file)
    return callers.DONE


async def list_tokens(settings: Settings, principal: str | None, *, as_json: bool, caller: Caller) -> int:
    """Print tokens, and return the exit code."""
    async with open_access(settings) as services:
        now = services.tokens.now
        found = await read_all(partial(services.tokens.page, principal, caller.access))
    items = [token_view(token, now) for token in found]
    if as_json:
        for item in items:
            typer.echo(json.dumps(item, ensure_ascii=False))
    else:
        members = ("id", "principal", "status", "expiresAt", "lastUsedAt", "owner", "note")
        rows = [[item[member] or "-" for member in members] for item in items]
        typer.echo(columns(("ID", "PRINCIPAL", "STATUS", "EXPIRES", "LAST USED", "OWNER", "NOTE"), rows))
    return callers.DONE


async def revoke(settings: Settings, token_id: UUID, caller: Caller, *, with_created: bool) -> int:
    """Revoke a token, and return the exit code."""
    async with open_access(settings) as services:
        found = await services.tokens.revoke(token_id, caller, with_created=with_created)
    token = found.token
    typer.echo(f"The token {token.id} of {token.principal} is revoked; every process refuses it within two seconds")
    if found.revoked:
        typer.echo(f"Tokens that were created with it, and are revoked too: {found.revoked}")
    if found.active:
        typer.echo(
            f"Active tokens that were created with it: {found.active}. `confplane tokens revoke {token.id}"
            " --with-created` revokes them too",
            err=True,
        )
    return callers.DONE


async def confirm(settings: Settings, caller: Caller) -> int:
    """Admit the tokens of a restored Postgres, and return the exit code."""
    async with open_access(settings) as services:
        confirmed = await services.tokens.confirm(caller)
    typer.echo(
        "The tokens are confirmed; every process admits them within two seconds"
        if confirmed
        else "No tokens are waiting for a confirmation; nothing to do"
    )
    return callers.DONE


async def invalidate(settings: Settings, before: datetime, caller: Caller) -> int:
    """Revoke the tokens created before a time, and return the exit code."""
    async with open_access(settings) as services:
        count = await services.tokens.invalidate(before, caller)
    revoked = callers.pluralize(count, "token is", "tokens are")
    typer.echo(f"{revoked} revoked; every process refuses them within two seconds")
    return callers.DONE


async def _rotate(
    settings: Settings, token_id: UUID, overlap_s: int, lifetime_s: int | None, output: Path | None, caller: Caller
) -> int:
    with _open_output(output) as file:
        async with open_access(settings) as services:
            expires_at = None if lifetime_s is None else services.tokens.now + timedelta(seconds=lifetime_s)
            made = await services.tokens.rotate(token_id, overlap_s, caller, expires_at=expires_at)
            old = await services.tokens.find(token_id, caller.access)
        _write(made, file)
    typer.echo(f"The old token {old.id} is valid until {token_view(old, made.token.created_at)['expiresAt']}", err=True)
    return callers.DONE


def _run(work: Coroutine[None, None, int], failure: str, output: Path | None) -> int:
    try:
        return callers.run(work, failure)
    except OSError as error:
        typer.echo(
            f"{output} can't be written: {error.strerror}. Where `confplane tokens list` shows a new token, revoke it",
            err=True,
        )
        return callers.FAILED


def _open_output(output: Path | None) -> AbstractContextManager[TextIO | None]:
    """Return the file for a token, which only its owner can read; None for standard output.

    The file is created before the token, so that no token is lost if the file can't be created.
    """
    return nullcontext() if output is None else atomic_write(output, mode=0o600)


def _write(made: CreatedToken, file: TextIO | None) -> None:
    token = made.token
    if file is None:
        typer.echo(made.text)
    else:
        file.write(f"{made.text}\n")
    until = token_view(token, token.created_at)["expiresAt"]
    typer.echo(
        f"The token {token.id} of {token.principal} is valid until {until}; its text is shown this once", err=True
    )
