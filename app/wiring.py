"""The composition root: settings in, a running service out. The only module that knows every part."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import uvicorn
import yaml

from app.api.app import create_api, specification
from app.api.context import Services
from app.audit import Database, PostgresAuditLog, PostgresRegistrationLog
from app.domain.client_configs import ClientConfigs
from app.domain.errors import InvalidRequestError
from app.domain.facets import FacetName, Tree
from app.domain.quotas import ClientQuotas
from app.security.tokens import AdminToken
from app.services.alter import AlterService
from app.services.clusters import Cluster, Clusters, Collection
from app.services.describe import DescribeService
from app.services.readiness import Readiness
from app.settings import ClientConfigsLayout, ClusterSettings, Settings
from app.store import FacetIndex, ZooKeeperStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from fastapi import FastAPI
    from starlette.types import ASGIApp

    from app.domain.entities import Entity
    from app.domain.facets import Facet

_DRAIN_S = 10.0
"""How long a stop waits for changes between their intent and their outcome."""


def create_app(settings: Settings) -> ASGIApp:
    """Build the service. Its stores start with the application's lifespan, and need not be up by then."""
    database = Database(settings.postgres.dsn.get_secret_value(), pool_size=settings.postgres.pool_size)
    audit = PostgresAuditLog(database)
    registrations = PostgresRegistrationLog(database)
    stores: dict[str, ZooKeeperStore] = {}
    clusters: dict[str, Cluster] = {}
    for name, cluster in settings.clusters.items():
        facets = _facets(cluster)
        trees = _trees(cluster)
        store = ZooKeeperStore(
            name,
            connect=cluster.zookeeper,
            session_timeout_ms=cluster.session_timeout_ms,
            max_packet=cluster.max_packet,
            notifications_max=cluster.notifications_max,
            facets={
                facet.name.value: FacetIndex(trees[facet.name], facet.owns, _covers(facet)) for facet in facets.values()
            },
        )
        stores[name] = store
        clusters[name] = Cluster(
            name,
            store,
            {
                facet_name: Collection(
                    facet, trees[facet_name], store, layout_chosen=cluster.client_configs_layout is not None
                )
                for facet_name, facet in facets.items()
            },
        )
    served = Clusters(clusters)
    alter = AlterService(audit)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await database.start()
            stack.push_async_callback(database.close)
            stack.push_async_callback(audit.close)
            await registrations.start()
            stack.push_async_callback(registrations.close)
            for store in stores.values():
                await store.start()
                stack.push_async_callback(store.stop)
            stack.push_async_callback(alter.drain, _DRAIN_S)
            settling = asyncio.create_task(_settle_memory(stores.values()))
            stack.callback(settling.cancel)
            yield

    return create_api(
        Services(
            clusters=served,
            alter=alter,
            describe=DescribeService(registrations),
            audit=audit,
            registrations=registrations,
            readiness=Readiness(served, audit),
        ),
        authenticator=AdminToken.from_file(settings.admin_token_file),
        max_body_bytes=settings.http.max_body_bytes,
        deadline_ms=settings.http.request_deadline_ms,
        lifespan=lifespan,
    )


async def _settle_memory(stores: Iterable[ZooKeeperStore]) -> None:
    """Take the loaded mirrors out of the garbage collector's sight, once: it would stop the loop to walk them."""
    while any(store.freshness() is None for store in stores):  # noqa: ASYNC110 - once at start, and nothing to wait on
        await asyncio.sleep(1)
    gc.collect()
    gc.freeze()


def uvicorn_config(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Return how the service is served: one process, uvloop and httptools, no access log."""
    return uvicorn.Config(
        app,
        host=settings.http.host,
        port=settings.http.port,
        loop="uvloop",
        http="httptools",
        access_log=False,
        server_header=False,
        log_config=None,
        timeout_graceful_shutdown=int(_DRAIN_S),
    )


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    # Requests leave next to no cycles behind, and at Python's default the collector takes a twelfth of each write.
    gc.set_threshold(20_000, 20, 20)
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    uvicorn.Server(uvicorn_config(create_app(settings), settings)).run()


def openapi_yaml() -> str:
    """Return the specification that is kept in openapi/openapi.yaml."""
    return yaml.safe_dump(specification(), sort_keys=False, allow_unicode=True, width=120)


def _facets(cluster: ClusterSettings) -> Mapping[FacetName, Facet]:
    return {
        FacetName.CLIENT_QUOTAS: ClientQuotas(),
        FacetName.CLIENT_CONFIGS: ClientConfigs(
            extra_keys=cluster.dynamic_client_configs,
            min_session_timeout_ms=cluster.group_min_session_timeout_ms,
            max_session_timeout_ms=cluster.group_max_session_timeout_ms,
        ),
    }


def _covers(facet: Facet) -> Callable[[Entity], bool]:
    def covers(entity: Entity) -> bool:
        try:
            facet.check_entity(entity)
        except InvalidRequestError:
            return False
        return True

    return covers


def _trees(cluster: ClusterSettings) -> Mapping[FacetName, Tree]:
    separate = cluster.client_configs_layout is ClientConfigsLayout.SEPARATE
    return {
        FacetName.CLIENT_QUOTAS: Tree.CONFIG,
        FacetName.CLIENT_CONFIGS: Tree.CLIENT_CONFIGS if separate else Tree.CONFIG,
    }
