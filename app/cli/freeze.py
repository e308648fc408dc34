"""``confplane freeze`` and ``confplane thaw``: stop the writes to a cluster's configs, and let them go on."""

from __future__ import annotations

import asyncio
import getpass
import socket
import time
import uuid
from typing import TYPE_CHECKING

import typer

from app.domain.errors import ConfplaneError, InvalidRequestError, NotFoundError, OutcomeUnknownError
from app.services.clusters import Caller
from app.services.freeze import FreezeService
from app.wiring import opened

if TYPE_CHECKING:
    from app.services.freeze import FreezeResult
    from app.settings import Settings

_FAILED = 1
_INVALID = 2
_UNKNOWN = 3
_DEADLINE_S = 30.0


def freeze(settings: Settings, cluster: str, reason: str) -> int:
    """Freeze a cluster, say what came of it, and return the exit code."""
    return _run(settings, cluster, reason, frozen=True)


def thaw(settings: Settings, cluster: str, reason: str) -> int:
    """Thaw a cluster, say what came of it, and return the exit code."""
    return _run(settings, cluster, reason, frozen=False)


def operator() -> str:
    """Return the principal that the trail has for whoever runs a command on this machine."""
    try:
        login = getpass.getuser()
    except (OSError, KeyError):
        login = "unknown"
    return f"User:{login if login.isprintable() else 'unknown'}@cli"


def _run(settings: Settings, cluster: str, reason: str, *, frozen: bool) -> int:
    done = "frozen" if frozen else "thawed"
    try:
        result = asyncio.run(_change(settings, cluster, reason, frozen=frozen))
    except OutcomeUnknownError as error:
        typer.echo(f"Cluster {cluster}: it is not known whether it is {done}. {error}", err=True)
        return _UNKNOWN
    except (InvalidRequestError, NotFoundError) as error:
        typer.echo(f"Not {done}: {error}", err=True)
        return _INVALID
    except ConfplaneError as error:
        typer.echo(f"Not {done}: {error}", err=True)
        return _FAILED
    if result.change_id is not None:
        typer.echo(f"Cluster {cluster} is {done} as of revision {result.revision} (change {result.change_id})")
    elif result.after is not None:
        typer.echo(f"Cluster {cluster} was frozen for that reason already, {result.after}")
    else:
        typer.echo(f"Cluster {cluster} was not frozen; nothing to do")
    return 0


async def _change(settings: Settings, cluster: str, reason: str, *, frozen: bool) -> FreezeResult:
    async with opened(settings, cluster) as parts:
        caller = Caller(
            principal=operator(),
            source=socket.gethostname(),
            request_id=str(uuid.uuid4()),
            deadline=time.monotonic() + _DEADLINE_S,
            reason=reason,
        )
        service = FreezeService(parts.audit)
        change = service.freeze if frozen else service.thaw
        return await change(parts.stores[cluster], reason, caller)
