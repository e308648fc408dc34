"""``DynamicProducerConfig`` and ``DynamicConsumerConfig``: settings that follow a client's dynamic configs (KIP-649).

Example::

    service = Service("https://confplane.example.com", token=token, cluster="payments", user="alice")
    own = {"bootstrap.servers": "kafka:9092", "client.id": "billing"}
    with DynamicProducerConfig(own, library=CONFLUENT_KAFKA, service=service) as dynamic:
        producer = confluent_kafka.Producer(dynamic.settings)

No Kafka client changes these settings while it runs. An added :class:`Reconfigurable` is notified of each change, and
makes a new client; :mod:`confplane.client.dynamic.swap` has implementations.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
import uuid
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confplane.client.asynchronous import AsyncConfplane
from confplane.client.dynamic.config_follower import ConfigFollower, LastKnownGoodFile
from confplane.client.dynamic.names import CLIENT_ID, METADATA_MAX_AGE
from confplane.client.dynamic.reconfigurable import ReconfigurableRegistry
from confplane.client.dynamic.reports import ConfigsInUse, Reporter, redact_reason
from confplane.client.dynamic.rules import DEFAULT_MAX_AGE_MS, SUPPORTED, enabled, max_age_s
from confplane.client.dynamic.source import (
    DynamicValues,
    PollingSource,
    SoftwareRegistration,
    SourceUnavailable,
    SourceUnsupported,
    UnchangedValues,
)
from confplane.domain.client_configs import INSTANCE_ID
from confplane.domain.definitions import ConfigKind
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from confplane.client.dynamic.names import Library
    from confplane.client.dynamic.reconfigurable import Reconfigurable
    from confplane.client.dynamic.rules import Decision
    from confplane.client.dynamic.source import UpdateSource
    from confplane.client.tokens import Token

_log: Final = logging.getLogger(__name__)

FIRST_FETCH_S: Final = 2.0
"""Maximum seconds that a start waits for the first answer."""


STOP_S: Final = 5.0
"""Maximum seconds that a stop waits for a swap in progress."""


@dataclass(frozen=True, slots=True)
class Service:
    """The service, and the user whose client configs apply.

    Args:
        url: Base URL, without ``/v1``.
        user: The user name with which the client logs in to Kafka.
        token: Bearer token, or the file or function that provides it, read before each poll; None to send none.
        cluster: Name of the cluster.
        verify: The TLS context; True for the authorities of the system.
    """

    url: str
    user: str
    token: Token | None = field(repr=False)
    cluster: str = "default"
    verify: ssl.SSLContext | bool = True

    def client(self) -> AsyncConfplane:
        """Make a client of the service without retries: the next poll or report is the retry."""
        return AsyncConfplane(self.url, token=self.token, cluster=self.cluster, verify=self.verify, tries=1)


class DynamicConfig:
    """A client's settings: its own, as changed by updates. Shared by threads and tasks.

    Args:
        own: The user's own settings, as the library takes them.
        library: The library.
        service: The service; not used if ``source`` is given.
        last_known_good: A file to keep the last values in; None for none.
        spread_s: Seconds over which clients spread a change: each waits for a random part of this time before it
            reconfigures.
        instance: The name under which this client reports its applied configs, 1 to 128 letters, digits and
            ``._-``; a random one for each start, if not given.
        source: Another source of updates, without reports.

    Raises:
        ValueError: ``instance`` is not such a name, or the service's ``user`` is not a valid user of Kafka.
    """

    kind: ConfigKind

    def __init__(
        self,
        own: Mapping[str, Any],
        *,
        library: Library,
        service: Service,
        last_known_good: str | Path | None = None,
        spread_s: float = 0.0,
        instance: str | None = None,
        source: UpdateSource | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        in_java = library.in_java(own)
        self._enabled = enabled(in_java)
        entity = _entity(service.user, in_java.get(CLIENT_ID), warn=self._enabled)
        file = None
        if last_known_good is not None:
            file = LastKnownGoodFile(Path(last_known_good), (service.url, service.cluster, entity.id))
        self._label = f"{self.kind} {entity.id}"
        self._follower = ConfigFollower(self.kind, own, library, label=self._label, file=file)
        self._max_age_s = max_age_s(in_java) or DEFAULT_MAX_AGE_MS / 1000
        if self._enabled and max_age_s(in_java) is None:
            _log.warning("%s: polls every five minutes, as %s is not a number above 0", self._label, METADATA_MAX_AGE)
        self._registration = SoftwareRegistration(library.name, library.version, SUPPORTED[self.kind])
        self._entity, self._service, self._source = entity, service, source
        self._sleep = sleep
        self._reconfigurables = ReconfigurableRegistry(self._label, spread_s, sleep)
        self._instance = instance
        if instance is not None and not re.fullmatch(INSTANCE_ID, instance):
            raise ValueError("an instance's name has 1 to 128 letters, digits and ._- and is neither . nor ..")
        self._texts = [value for value in own.values() if isinstance(value, str)]
        self._reporter: Reporter | None = None
        self._applied = ConfigsInUse()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings now in force, for the library's constructor."""
        return dict(self._follower.settings)

    @property
    def decision(self) -> Decision:
        """The accepted dynamic values, and the dropped ones."""
        return self._follower.decision

    def add(self, reconfigurable: Reconfigurable, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Offer each later change to an object, and return its initial settings.

        Args:
            reconfigurable: The object.
            settings: The settings that it runs with; those now in force, if not given.
        """
        begins = self.settings if settings is None else dict(settings)
        self._reconfigurables.add(reconfigurable, dict(begins))
        return begins

    def taken_over(self) -> None:
        """Report that an object now runs with settings that it was given earlier. Thread-safe."""
        if self._reporter is not None:
            self._reporter.wake()

    def _now_applied(self) -> ConfigsInUse:
        """Return the last answer that each object has applied or refused."""
        settings = self.settings
        if self._reconfigurables.settled(settings):
            refused = {dropped.key: dropped.reason for dropped in self.decision.dropped}
            for former, reason in self._reconfigurables.refusals(settings):
                differing = self._follower.differing(former, settings)
                refused.update(dict.fromkeys(differing, redact_reason(reason, self._texts)))
            accepted = tuple(sorted(self.decision.accepted.items()))
            self._applied = ConfigsInUse(self._follower.revision, tuple(sorted(refused.items())), accepted)
        return self._applied

    async def _follow(self, decided: Callable[[], None]) -> None:
        """Follow the source until it ends; ``decided`` is called after each update."""
        async with contextlib.AsyncExitStack() as stack:
            source = self._source
            if source is None:
                client = await stack.enter_async_context(self._service.client())
                source = PollingSource(
                    client, self._entity, self._registration, max_age_s=self._max_age_s, sleep=self._sleep
                )
                self._reporter = await stack.enter_async_context(
                    Reporter(
                        *(client, self._entity, self._registration, self._instance or uuid.uuid4().hex),
                        self._now_applied,
                        label=self._label,
                    )
                )
            while True:
                update = await source.next()
                self._follower.take(update)
                decided()
                if self._follower.unsaved:
                    await asyncio.to_thread(self._follower.save)
                await self._reconfigurables.settle(self.settings)
                if isinstance(update, DynamicValues | UnchangedValues):
                    self.taken_over()
                if isinstance(update, SourceUnsupported):
                    return

    async def _begin(self, begun: Callable[[], object] = lambda: None) -> asyncio.Task[None]:
        """Follow the source in a task, and return it after the first answer or after two seconds.

        ``begun`` is called as soon as the first settings are available, because applying them may block the loop.
        """
        decided = asyncio.Event()

        def take_note() -> None:
            decided.set()
            begun()

        task = asyncio.create_task(self._follow(take_note))
        waiting = asyncio.create_task(decided.wait())
        try:
            await asyncio.wait({waiting, task}, timeout=FIRST_FETCH_S, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            waiting.cancel()
        task.add_done_callback(self._ended)
        if not decided.is_set():
            if task.done():
                await task  # raises the error that ended it
            self._follower.take(SourceUnavailable(f"no answer in {FIRST_FETCH_S:g} s"))
            begun()
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: dynamic configs are no longer followed", self._label, exc_info=error)

    def _warn_unfinished(self) -> None:
        _log.warning("%s: stopped while a swap, or a request, is under way, which ends by itself", self._label)


def _entity(user: str, client_id: str | None, *, warn: bool) -> Entity:
    """Return the entity of a client, or that of its user if the client-id can't have configs.

    Raises:
        ValueError: No user has such a name.
    """
    try:
        of_user = Entity.of(user=user)
    except InvalidRequestError as error:
        raise ValueError(f"user: {error}") from None
    if not client_id:  # Java's default is the empty text
        return of_user
    try:
        return Entity.of(user=user, client_id=client_id)
    except InvalidRequestError:
        if warn:
            _log.warning(
                "%s: configs can't be set for the client-id %r, those of the user apply", of_user.id, client_id
            )
        return of_user


class _AsyncDynamicConfig(DynamicConfig):
    """Runs as a task of the event loop that starts it."""

    _task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Wait for the first answer, two seconds at most, and follow changes from then on.

        Without an answer, the settings are the last known good values, or else the user's own.
        """
        if self._enabled and self._task is None:
            self._task = await self._begin()

    async def stop(self) -> None:
        """Stop following. The settings stay unchanged. A swap that takes more than five seconds is not awaited."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        if task is not asyncio.current_task() and (await asyncio.wait({task}, timeout=STOP_S))[1]:
            self._warn_unfinished()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


class _ThreadedDynamicConfig(DynamicConfig):
    """Runs in its own thread, which calls the reconfigurables."""

    _thread: threading.Thread | None = None
    _end: Callable[[], object]

    def start(self) -> None:
        """Wait for the first answer, two seconds at most, and follow changes from then on.

        Without an answer, the settings are the last known good values, or else the user's own.
        """
        # After a fork, the thread does not run in the child process.
        if not self._enabled or (self._thread is not None and self._thread.is_alive()):
            return
        begun: Future[None] = Future()
        self._end = lambda: None
        self._thread = threading.Thread(target=self._run, args=(begun,), name=f"dynamic {self._label}", daemon=True)
        self._thread.start()
        try:
            begun.result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop following. The settings stay unchanged. A swap that takes more than five seconds is not awaited."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._end()
        if thread is threading.current_thread():
            return
        thread.join(STOP_S)
        if thread.is_alive():
            self._warn_unfinished()

    def _run(self, begun: Future[None]) -> None:
        def take_note() -> None:
            if not begun.done():
                begun.set_result(None)

        async def main() -> None:
            loop, ended = asyncio.get_running_loop(), asyncio.Event()

            def end() -> None:
                with contextlib.suppress(RuntimeError):  # the loop has ended by itself: the service lacks the feature
                    loop.call_soon_threadsafe(ended.set)

            self._end = end
            waiting = asyncio.create_task(ended.wait())
            task = await self._begin(take_note)
            await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
            for each in (waiting, task):
                each.cancel()
            await asyncio.wait({waiting, task})

        try:
            asyncio.run(main())
        except BaseException as error:
            if begun.done():
                raise
            begun.set_exception(error)  # raised by start

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class DynamicProducerConfig(_ThreadedDynamicConfig):
    """A producer's settings, followed in a thread."""

    kind = ConfigKind.PRODUCER


class DynamicConsumerConfig(_ThreadedDynamicConfig):
    """A consumer's settings, followed in a thread."""

    kind = ConfigKind.CONSUMER


class AsyncDynamicProducerConfig(_AsyncDynamicConfig):
    """A producer's settings, followed in a task."""

    kind = ConfigKind.PRODUCER


class AsyncDynamicConsumerConfig(_AsyncDynamicConfig):
    """A consumer's settings, followed in a task."""

    kind = ConfigKind.CONSUMER
