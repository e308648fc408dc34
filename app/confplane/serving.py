"""The service: the parts of :mod:`confplane.wiring`, the API that uses them, and the listener."""

from __future__ import annotations

import gc
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import yaml

from confplane import listener, logs
from confplane.api import services as provided
from confplane.api.app import create_api, specification
from confplane.api.cors import Cors
from confplane.api.feed.render import event_json
from confplane.api.middleware import MiddlewareOptions
from confplane.api.problems import ListenerErrorRenderer
from confplane.api.rendering import EffectiveValueRenderer, EntryRenderer
from confplane.api.request_context import Traffic
from confplane.api.resource import ProtectedResource
from confplane.audit import (
    PostgresAccessStore,
    PostgresAppliedReports,
    PostgresConsoleSessions,
    PostgresEntityStates,
    PostgresFeedTrail,
    PostgresOwnerships,
    PostgresRefusedAttempts,
    PostgresRegistrationLog,
    PostgresRequestKeys,
    PostgresRollups,
    PostgresSchedules,
    PostgresTrailHistory,
    PostgresWebhooks,
)
from confplane.audit.write_behind_buffer import close_together
from confplane.console.app import Front
from confplane.console.page import Console
from confplane.console.sessions import SessionKeeper
from confplane.console.sign_in import CALLBACK
from confplane.crypto import ConsoleKey, WebhookKey
from confplane.domain.outbound_urls import UrlGuard
from confplane.policy import read_policy
from confplane.request_wiring import RequestWiring
from confplane.security.authentication_setup import AuthenticationSetup
from confplane.security.events import EventLog
from confplane.security.token_cache import TokenCache
from confplane.services.access import AccessControl
from confplane.services.changes.freeze import FreezeService
from confplane.services.changes.idempotency import IdempotencyService
from confplane.services.feed.hub import FeedHub
from confplane.services.kraft.warnings import KraftWarnings
from confplane.services.limits import LimitClass, Limiter, LimitOverride, RateLimit, RateLimits
from confplane.services.plans.owners import OwnershipReader
from confplane.services.plans.plan import PlanService
from confplane.services.reads.describe import DescribeService
from confplane.services.reads.history import HistoryService
from confplane.services.reads.owners import OwnerViews
from confplane.services.recorder.record import Recorder
from confplane.services.response_budget import ResponseBudget
from confplane.services.reverts.service import RevertService
from confplane.services.schedules.ends import ScheduleEnder
from confplane.services.schedules.scheduler import Scheduler
from confplane.services.schedules.service import ScheduleService
from confplane.services.ticks import Ticks
from confplane.services.upkeep.readiness import Readiness
from confplane.services.upkeep.reconcile import Reconciler
from confplane.services.upkeep.rollup_watch import RollupWatch
from confplane.services.watched_files import UnusableFileError, WatchedFiles
from confplane.services.webhooks.deliverer import WebhookDeliverer
from confplane.services.webhooks.dispatcher import WebhookDispatcher
from confplane.services.webhooks.owners import WebhookOwners
from confplane.services.webhooks.subscriptions import WebhookParts, WebhookService
from confplane.services.webhooks.undelivered import UndeliveredWebhooks
from confplane.settings import UnusableSettingsError
from confplane.telemetry import Telemetry
from confplane.wiring import build, redaction, tokens_and_grants

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from fastapi import FastAPI
    from starlette.types import ASGIApp

    from confplane.audit import Database
    from confplane.domain.policies import Policies
    from confplane.listener import Connections, HttpServer
    from confplane.security.oidc.provider import Provider
    from confplane.services.metrics import MetricsSource
    from confplane.settings import (
        LimitOverrideSettings,
        LimitSettings,
        LimitsSettings,
        Settings,
    )
    from confplane.tracing import OtelTracing
    from confplane.wiring import ServiceParts


_log: Final = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    logs.set_up(settings.log_level, as_json=settings.log_format == "json")
    server = make_server(settings)
    # Later collections need not walk the modules. Mirrors exempt themselves (store/mirror/memory.py).
    gc.collect()
    gc.freeze()
    server.run()


def make_server(settings: Settings) -> HttpServer:
    """Return the server of the service, not started."""
    connections = listener.make_connections(settings.http)
    tls = None if settings.http.tls is None else listener.ListenerTls(settings.http.tls)
    files = () if tls is None else (WatchedFiles("certificate or key of the listener", tls.files, tls.reload),)
    tracing = _tracing(settings)
    app, render_error, readiness = create_app(settings, connections, files)
    if tracing is not None:
        app = tracing.traced(app)
    return listener.make_server(
        app, settings.http, connections=connections, render_error=render_error, readiness=readiness, tls=tls
    )


def create_app(
    settings: Settings, connections: Connections, files: Sequence[WatchedFiles] = ()
) -> tuple[ASGIApp, ListenerErrorRenderer, Readiness]:
    """Build the service. Its stores start with the application's lifespan, and need not be available at that time.

    Args:
        settings: The settings.
        connections: The process's connections.
        files: Files of the listener that are reloaded when they change.

    Returns:
        The application, the renderer of errors without a request, and the readiness to set when a shutdown begins.
    """
    parts = build(settings)
    registrations = PostgresRegistrationLog(parts.database)
    applied = PostgresAppliedReports(parts.database, partition=registrations.partition)
    refusals = PostgresRefusedAttempts(parts.database, partition=registrations.partition)
    keys = PostgresRequestKeys(parts.database, parts.audit.claims)
    idempotency = IdempotencyService(keys, parts.audit)
    access_store = PostgresAccessStore(parts.database)
    token_cache = TokenCache(access_store, settings.access.max_age_s)
    events = EventLog(access_store)
    control = AccessControl(token_cache, events)
    authentication = AuthenticationSetup(settings, token_cache, control, [*files, *_policy_files(settings, parts)])
    deadline_ms = settings.http.request_deadline_ms
    reconciler_ticks, recorder_ticks = Ticks(), Ticks()
    reconcilers = [
        Reconciler(store, parts.audit, parts.changes, deadline_ms=deadline_ms, ticks=reconciler_ticks)
        for store in parts.stores.values()
    ]
    states = PostgresEntityStates(parts.database)
    recorders = {
        name: Recorder(
            store, states, redaction(settings.clusters[name], store), deadline_ms=deadline_ms, ticks=recorder_ticks
        )
        for name, store in parts.stores.items()
        if settings.clusters[name].record_external_changes
    }

    rollups = PostgresRollups(parts.database)
    rollup_watch = RollupWatch(list(parts.stores), rollups)
    loops = [wiring.loops for wiring in parts.kraft_wirings.values()]
    unobserved = [KraftWarnings(store, {}) for name, store in parts.stores.items() if name not in parts.kraft_wirings]

    trail = PostgresTrailHistory(parts.database)
    schedules, schedulers = _schedules(parts, trail, token_cache)
    describe = DescribeService(registrations)
    history = HistoryService(trail, parts.audit, describe)
    reverts = RevertService(parts.audit, trail, history, parts.alter)
    plans = _plans(parts, trail, recorders)
    requests = RequestWiring.of(parts, control, access_store, token_cache.refresh_confirmed, reverts, plans)
    feeds = FeedHub(
        parts.clusters,
        PostgresFeedTrail(parts.database),
        parts.audit,
        trail,
        lambda: readiness.stopping,
        recorded=recorders.keys(),
    )
    webhooks, dispatchers, deliverers, undelivered = _webhooks(settings, parts, feeds, control, token_cache.groups_of)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with parts.running(), AsyncExitStack() as stack:
            buffers = (registrations, applied, refusals)
            stack.push_async_callback(close_together, (*buffers, keys))
            for buffer in buffers:
                await buffer.start()
            for work in (
                token_cache,
                events,
                idempotency,
                *reconcilers,
                *authentication.background,
                *recorders.values(),
                rollup_watch,
                *schedulers,
                *requests.schedulers,
                feeds,
                *dispatchers,
                *undelivered,
                # Before the appliers, which are stopped first: the observer closes the connections.
                *(each.observer for each in loops),
                *(each.applier for each in loops),
                *parts.throttle_watches,
            ):
                work.start()
                stack.push_async_callback(work.stop)
            yield

    limiter = _limiter(settings.limits)
    cors = Cors(settings.http.cors_origins) if settings.http.cors_origins else None
    resource = _protected_resource(settings)
    warning_sources = (
        token_cache,
        *parts.incarnation_checks.values(),
        *reconcilers,
        *recorders.values(),
        *schedulers,
        *authentication.background,
        *(each.warnings for each in loops),
        *unobserved,
        *parts.throttle_watches,
        *dispatchers,
        *undelivered,
    )
    readiness = Readiness(
        parts.clusters, parts.audit, warning_sources, tokens_read=lambda: token_cache.age_s() is not None
    )
    traffic, response_budget = Traffic(), ResponseBudget()
    measured: list[MetricsSource] = [
        token_cache,
        events,
        readiness,
        traffic,
        response_budget,
        describe.supported_keys,
        connections,
        parts.runner,
        parts.alter,
        idempotency,
        *parts.stores.values(),
        *reconcilers,
    ]
    if limiter is not None:
        measured.append(limiter)
    measured += [
        *recorders.values(),
        rollup_watch,
        *schedulers,
        *requests.schedulers,
        *(each.reporter for each in loops),
        *parts.throttle_watches,
        feeds,
        *dispatchers,
        *deliverers,
        *parts.kraft_wirings.values(),
        *authentication.background,
        parts.database,
        parts.audit,
        keys,
        registrations,
        applied,
        refusals,
    ]
    api = create_api(
        dict(
            (
                provided.ACCESS_ADMIN.entry(tokens_and_grants(settings, access_store, control, token_cache.refresh)),
                provided.ALTER.entry(parts.alter),
                provided.APPLIED.entry(applied),
                provided.APPLIES.entry(requests.applies),
                provided.AUDIT.entry(parts.audit),
                provided.CHANGE_REQUESTS.entry(requests.service),
                provided.CLUSTERS.entry(parts.clusters),
                provided.DESCRIBE.entry(describe),
                provided.EFFECTIVE_VALUES.entry(EffectiveValueRenderer(describe)),
                provided.ENTRY_RENDERER.entry(EntryRenderer(describe)),
                provided.FEEDS.entry(feeds),
                provided.FREEZES.entry(FreezeService(parts.runner)),
                provided.HISTORY.entry(history),
                provided.IDEMPOTENCY.entry(idempotency),
                provided.METRICS.entry(Telemetry(measured)),
                provided.OBSERVED_TOPICS.entry(parts.observed_topics),
                provided.PLANS.entry(plans),
                provided.READINESS.entry(readiness),
                provided.RECORDERS.entry(recorders),
                provided.REFUSALS.entry(refusals),
                provided.REGISTRATIONS.entry(registrations),
                provided.RESOURCE.entry(resource),
                provided.RESOURCE_READS.entry(
                    provided.ResourceReads(describe, history, OwnerViews(PostgresOwnerships(parts.database)))
                ),
                provided.RESPONSE_BUDGET.entry(response_budget),
                provided.REVERTS.entry(reverts),
                provided.ROLLUPS.entry(rollups),
                provided.SCHEDULES.entry(schedules),
                provided.WEBHOOKS.entry(webhooks),
            )
        ),
        authenticator=authentication.authenticator,
        max_body_bytes=settings.http.max_body_bytes,
        deadline_ms=deadline_ms,
        traffic=traffic,
        options=MiddlewareOptions(limiter, cors, resource, events),
        lifespan=lifespan,
    )
    console = _console(settings, api, parts.database, authentication.providers)
    return Front(api, console), ListenerErrorRenderer(traffic, cors), readiness


def _tracing(settings: Settings) -> OtelTracing | None:
    """Start the traces of the process, or return None if they are off.

    Raises:
        UnusableSettingsError: The packages are not installed.
    """
    if not settings.tracing:
        return None
    try:
        from confplane.tracing import OtelTracing  # noqa: PLC0415 - without traces OpenTelemetry is not needed
    except ImportError as error:
        raise UnusableSettingsError(
            f"tracing is true, and {error.name} is not installed: install confplane[otel], or set tracing to false"
        ) from None
    tracing = OtelTracing()
    tracing.start()
    return tracing


def _protected_resource(settings: Settings) -> ProtectedResource | None:
    """Return the OAuth description of the service, or None without a public URL."""
    url = settings.http.public_url
    return None if url is None else ProtectedResource(url, tuple(dict.fromkeys(each.issuer for each in settings.oidc)))


def _policy_files(settings: Settings, parts: ServiceParts) -> Iterator[WatchedFiles]:
    """Return the watches of policy files. A file with mistakes leaves the rules of the last good one in force."""

    def reload(policies: Policies, path: Path) -> None:
        try:
            policies.replace_rules(read_policy(path))
        except UnusableSettingsError as error:
            raise UnusableFileError(error.problems[0]) from None

    for name, policies in parts.policies.items():
        if (path := settings.clusters[name].policy_file) is not None:
            yield WatchedFiles(f"policy file of cluster {name}", [path], partial(reload, policies, path))
            # The file may have changed between the load of the policies and the begin of the watch.
            policies.replace_rules(read_policy(path))


def _console(settings: Settings, api: ASGIApp, database: Database, providers: Sequence[Provider]) -> Console | None:
    """Return the parts of the web console, or None if it is off.

    Raises:
        UnusableSettingsError: The key file can't be used.
    """
    if not settings.console or settings.console_key_file is None:
        _log.info(
            "The web console is off: %s", "console_key_file is not set" if settings.console else "console is false"
        )
        return None
    key = ConsoleKey.from_file(settings.console_key_file)
    flows = []
    clients = [provider for provider in providers if provider.settings.console_client_id is not None]
    if clients:
        from confplane.security.oidc.code_flow import CodeFlow  # noqa: PLC0415 - only services with issuers need httpx

        flows = [CodeFlow(provider, f"{settings.http.public_url}{CALLBACK}") for provider in clients]
    sessions = SessionKeeper(PostgresConsoleSessions(database), key)
    return Console(api, sessions, key, settings.http.public_url, settings.console_is_secure, flows)


def _webhooks(
    settings: Settings,
    parts: ServiceParts,
    feeds: FeedHub,
    control: AccessControl,
    groups_of: Callable[[str], frozenset[str]],
) -> tuple[WebhookService, Sequence[WebhookDispatcher], Sequence[WebhookDeliverer], Sequence[UndeliveredWebhooks]]:
    """Return the service of webhooks, the parts that deliver if webhooks are on, and the warning if they are off.

    Raises:
        UnusableSettingsError: The key file or the file of authorities can't be used.
    """
    given, store, owners = settings.webhooks, PostgresWebhooks(parts.database), WebhookOwners(control)
    if given.key_file is None:
        _log.info("Webhooks are off: webhooks.key_file is not set")
        undelivered = UndeliveredWebhooks(list(parts.stores), store)
        return WebhookService(store, owners, feeds, groups_of, None), (), (), [undelivered]
    from confplane.security.outbound import GuardedSender, authorities  # noqa: PLC0415 - TLS for webhooks alone

    guard = UrlGuard(given.allowed_hosts, given.insecure_http)
    key = WebhookKey.from_file(given.key_file)
    sender = GuardedSender(guard, authorities(given.ca_file))
    deliverer = WebhookDeliverer(sender, key, guard, settings.http.public_url, _now)
    ticks = Ticks()
    dispatchers = [
        WebhookDispatcher(cluster, store, feeds, owners, deliverer, event_json, ticks=ticks)
        for cluster in parts.clusters
    ]
    service = WebhookService(store, owners, feeds, groups_of, WebhookParts(guard, key, deliverer))
    return service, dispatchers, [deliverer], ()


def _schedules(
    parts: ServiceParts, trail: PostgresTrailHistory, tokens: TokenCache
) -> tuple[ScheduleService, Sequence[Scheduler]]:
    """Return the service of temporary changes, and what ends those of each cluster."""
    schedules = PostgresSchedules(parts.database)
    ender, ticks = ScheduleEnder(parts.audit, trail, parts.alter, schedules), Ticks()
    schedulers = [
        Scheduler(cluster, schedules, ender, tokens.refresh_confirmed, ticks=ticks) for cluster in parts.clusters
    ]
    return ScheduleService(schedules, ender), schedulers


def _plans(parts: ServiceParts, trail: PostgresTrailHistory, recorded: Collection[str]) -> PlanService:
    return PlanService(parts.alter, OwnershipReader(PostgresOwnerships(parts.database), trail, recorded))


def _now() -> datetime:
    return datetime.now(UTC)


def _limiter(settings: LimitsSettings) -> Limiter | None:
    """Return the limits of clients, or None if the settings turn them off."""
    if not settings.enabled:
        return None

    def classes(given: LimitsSettings | LimitOverrideSettings) -> dict[LimitClass, RateLimit]:
        found: dict[LimitClass, LimitSettings | None] = {kind: getattr(given, kind) for kind in LimitClass}
        return {kind: RateLimit(each.per_second, each.burst) for kind, each in found.items() if each is not None}

    overrides = {name: LimitOverride(classes(given), given.waiting) for name, given in settings.overrides.items()}
    return Limiter(RateLimits(classes(settings), settings.waiting), overrides)


def openapi_yaml() -> str:
    """Return the specification that is stored in openapi/openapi.yaml."""
    return yaml.safe_dump(specification(), sort_keys=False, allow_unicode=True, width=120)
