"""The whole service in the process of a test, on real stores, with the callers and grants of the test."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import httpx

from confplane import listener, serving
from confplane.settings import Settings
from tests.support import servers
from tests.support.credentials import Credentials, credentials
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest
    from starlette.types import ASGIApp, Message

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from confplane.security.token_cache import TokenCache
    from confplane.services.ports.access import StoredGrant

_ADMIN: Final = "the admin token of this test"


class Inside:
    """A running service, whose tokens and grants are in its Postgres.

    Attributes:
        app: The application.
        client: Sends requests to it.
        admin_token: The token of its administrator.
    """

    admin_token = _ADMIN

    def __init__(self, app: ASGIApp, made: Credentials) -> None:
        self.app = app
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://inside", timeout=60)
        self._book: TokenCache = cast("Any", app).api._authenticator._control._copy
        self._made = made
        self._tokens = {"admin": _ADMIN}

    async def send(self, principal: str, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """Send a request of a user or of ``admin``; paths without a leading slash are below the cluster ``default``."""
        token = self._tokens.get(principal)
        if token is None:
            _, token = await self._made.token(f"User:{principal}")
            self._tokens[principal] = token
            await self._book.refresh()
        url = path if path.startswith("/") else f"/v1/clusters/default/{path}"
        sent = {"Authorization": f"Bearer {token}"} | {name.replace("_", "-"): text for name, text in headers.items()}
        return await self.client.request(method, url, json=body, headers=sent)

    async def give(self, principal: str, **members: Any) -> StoredGrant:
        """Make a grant, effective immediately; members as of :class:`confplane.domain.access.grants.Grant`."""
        made = await self._made.grant(principal, **members)
        await self._book.refresh()
        return made

    async def take(self, *grants: StoredGrant) -> None:
        """Remove grants."""
        for each in grants:
            await self._made.remove(each)
        await self._book.refresh()


@asynccontextmanager
async def running_inside(
    chroot: str, database: servers.Database, directory: Path, **cluster: Any
) -> AsyncIterator[Inside]:
    """Run a service until the end of the context; ``cluster`` are settings of its one cluster."""
    token = directory / "token"
    token.write_text(_ADMIN)
    settings = Settings.model_validate(
        {
            "clusters": {"default": {"zookeeper": chroot, "session_timeout_ms": 20_000, **cluster}},
            "postgres": {"dsn": database.service_dsn},
            "admin_token_file": token,
        }
    )
    app, *_ = serving.create_app(settings, listener.make_connections(settings.http))
    async with _lifespan(app), credentials(database.service_dsn) as made:
        inside = Inside(app, made)
        try:
            await _ready(inside.client)
            yield inside
        finally:
            await inside.client.aclose()


@asynccontextmanager
async def running_on(
    zookeeper: ZooKeeper, postgres: Postgres, factory: pytest.TempPathFactory
) -> AsyncIterator[Inside]:
    """Run a service on a chroot and a database of its own."""
    database, chroot = servers.make_migrated(postgres), servers.make_chroot(zookeeper.hosts)
    async with running_inside(chroot, database, factory.mktemp("inside")) as running:
        yield running


async def _ready(client: httpx.AsyncClient) -> None:
    async def answers() -> bool:
        return (await client.get("/readyz")).status_code == httpx.codes.OK

    await until(answers)


@asynccontextmanager
async def _lifespan(app: ASGIApp) -> AsyncIterator[None]:
    """Start and stop an application like a server does."""
    asked, told = asyncio.Queue[Any](), asyncio.Queue[Any]()

    async def send(message: Message) -> None:
        await told.put(message)

    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    task = asyncio.ensure_future(app(scope, asked.get, send))
    await asked.put({"type": "lifespan.startup"})
    started = await told.get()
    assert started["type"] == "lifespan.startup.complete", started
    try:
        yield
    finally:
        await asked.put({"type": "lifespan.shutdown"})
        await told.get()
        await task
