"""Fixtures that every kind of test may use: real servers, once per run, and a place of its own on them per test."""

from __future__ import annotations

import fcntl
import functools
import gc
import os
import sys
import warnings
from collections import Counter
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
import pytest_asyncio
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from hypothesis import HealthCheck, settings
from xdist.scheduler.loadscope import LoadScopeScheduling

from confplane.audit.migrate import upgrade
from confplane.devstack.postgres import OWNER, SERVICE
from tests.support import servers, tools
from tests.support.forgetful import Forgetful
from tests.support.java import SPARK_OPTIONS
from tests.support.processes import start_children_with_defaults
from tests.support.proxy import Proxy, proxy
from tests.support.sampling import FULL_SIZE
from tests.support.service import Service, ServiceInThread
from tests.support.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator

    from kazoo.client import KazooClient

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.facets import ConfplaneClient

# How long an example takes says something of the machine, and nothing of what is tested. The gate's examples are always
# the same; tests/suites.py repeats its property tests with new ones.
settings.register_profile("new-seeds", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", settings.get_profile("new-seeds"), derandomize=True)
settings.load_profile("gate")

# Spark's tasks give Postgres ten seconds to accept a connection, and in a local session no task is tried again.
os.environ.setdefault("PGCONNECT_TIMEOUT", "120")


# In parallel a file is one process's work, and so are files that share what takes long to start: a Spark session, a
# Kafka broker. Files are named by the begin of their paths; the first that fits counts. A second session for half of the
# rollups would take a fifth more of the processors; test_parts.py needs none.
ONE_PROCESS: Final = ("tests/rollups/test_parts.py", "tests/rollups/", "tests/interop/", "tests/kraft/")
# What takes minutes begins first, so that no process is left with it at the end: folders of one process before all. Maven
# fetches what interop needs while the linters run, and the rest during the first tests.
FIRST: Final = (
    "tests/integration/test_scenarios.py",
    "tests/rollups/",
    "tests/interop/",
    "tests/kraft/",
    "tests/deploy/test_images.py",
    "tests/faults/test_faults.py",
    "tests/system/test_fuzzing.py",
    "tests/system/test_settling.py",
    "tests/system/test_rotate.py",
    "tests/system/test_idempotency_faults.py",
    "tests/system/test_leaks.py",
    "tests/system/test_session_states.py",
    "tests/faults/",
    "tests/devstack/",
    "tests/system/",
    "tests/features/",
    "tests/integration/",
)


_failed: Final[list[str]] = []
_WORK: Final = pytest.StashKey[ExitStack]()


def work_of(test: str) -> str:
    """Return the name of the work of one process that a test, named by its id, belongs to."""
    return next((work for work in ONE_PROCESS if test.startswith(work)), test.partition("::")[0])


class Files(LoadScopeScheduling):
    """Hands out whole files, or whole folders, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return work_of(nodeid)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:  # noqa: ARG001 - pluggy passes it by this name
    """Return the number of processes of ``--numprocesses auto``: two for each processor."""
    return 2 * (os.cpu_count() or 1)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Files:
    """Give parallel processes their work."""
    return Files(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect all tests without the garbage collector, which would scan them repeatedly, now and later."""
    gc.disable()
    try:
        with _one_worker_first():
            return (yield)
    finally:
        gc.freeze()
        # Tests leave few cycles behind; by default the collector takes a twentieth of their time.
        gc.set_threshold(50_000, 10, 10)
        gc.enable()


def pytest_unconfigure() -> None:
    """Let Python free all objects at its end: DuckDB prints those of its own that are left."""
    gc.unfreeze()


@contextmanager
def _one_worker_first() -> Iterator[None]:
    """Let one of the parallel processes collect first; the rest load the files that it has compiled."""
    with Path(__file__).open("rb") as file:
        if "PYTEST_XDIST_WORKER" in os.environ:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fcntl.flock(file, fcntl.LOCK_SH)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long tests first, and refuse tests that share an id: in parallel only one of them would be run."""

    def place(item: pytest.Item) -> tuple[int, bool]:
        first = next((at for at, name in enumerate(FIRST) if item.nodeid.startswith(name)), len(FIRST))
        # Three nodes of Kafka start for the tests that need them, and not before.
        return first, "quorum" in getattr(item, "fixturenames", ())

    items.sort(key=place)
    shared = sorted(name for name, count in Counter(item.nodeid for item in items).items() if count > 1)
    if shared:
        raise pytest.UsageError(f"Tests share an id: {', '.join(shared)}")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note the size of the run. Tests of full size have Java's usual compiler and collector, as a large cluster has."""
    session.config.stash[FULL_SIZE] = any(item.get_closest_marker("long") for item in session.items)
    if not session.config.stash[FULL_SIZE]:
        os.environ.setdefault("SPARK_SUBMIT_OPTS", SPARK_OPTIONS)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Start each test without what those before it left."""
    _drop_failures()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """End the servers in :func:`of_work` after the last test of their folder."""
    yield
    if nextitem is None or work_of(nextitem.nodeid) != work_of(item.nodeid):
        item.session.stash.setdefault(_WORK, ExitStack()).close()


@pytest.fixture(scope="session")
def of_work(request: pytest.FixtureRequest) -> Iterator[ExitStack]:
    """Servers of a folder of ``ONE_PROCESS``: they end after its last test.

    Four idle nodes of Kafka take a sixth of two processors: they must not run until the end of the session.
    """
    with request.session.stash.setdefault(_WORK, ExitStack()) as stack:
        yield stack


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note failures."""
    report = yield
    if report.failed:
        _failed.append(report.nodeid)
    return report


def _drop_failures() -> None:
    """Close what tests that failed left open: the warnings would fail a later test, which may be a proof."""
    if _failed:
        _failed.clear()
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def pytest_configure() -> None:
    """Let no process inherit that SIGINT is ignored, as it is in the background of a shell script."""
    start_children_with_defaults()


@pytest.fixture(scope="session", autouse=True)
def _one_tls_context() -> Iterator[None]:
    """Each client of httpx would read the certificates of all authorities, 20 ms each time, to speak plain HTTP."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx._transports.default.create_ssl_context", functools.cache(httpx.create_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def _patient_clients() -> Iterator[None]:
    """A client of httpx without a timeout of its own waits a minute, as a busy machine may, instead of five seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for phase in ("connect", "read", "write", "pool"):
            patch.setattr(DEFAULT_TIMEOUT_CONFIG, phase, 60.0)
        yield


@pytest.fixture(scope="session")
def zookeeper(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A running ZooKeeper. Never stop this one in a test: start one of your own."""
    with _server_directory(pytestconfig, tmp_path_factory.mktemp("zookeeper")) as directory:
        yield from servers.run_zookeeper(directory)


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A running Postgres without fsync. Never stop this one in a test: start one of your own."""
    with _server_directory(pytestconfig, tmp_path_factory.mktemp("postgres")) as directory:
        yield from servers.run_postgres(directory)


def _server_directory(config: pytest.Config, directory: Path) -> AbstractContextManager[Path]:
    """Return the directory of a server: in memory, unless tests of full size run, whose files need more room."""
    return nullcontext(directory) if config.stash[FULL_SIZE] else servers.in_memory(directory)


@pytest.fixture(scope="session")
def kraft_class_path() -> str:
    """The jars of Kafka 4; tests are skipped where there are none."""
    return tools.obtain(tools.kraft_class_path).read_text()


@pytest.fixture
def chroot(zookeeper: ZooKeeper) -> str:
    """A connect string with a fresh chroot, whose node exists."""
    return servers.make_chroot(zookeeper.hosts)


@pytest.fixture
async def zk_proxy(zookeeper: ZooKeeper) -> AsyncIterator[Proxy]:
    """A proxy to ZooKeeper whose connections can be cut, held and slowed."""
    async with proxy(zookeeper.hosts) as running:
        yield running


@pytest.fixture
def raw_zk(chroot: str) -> Iterator[KazooClient]:
    """A plain kazoo client rooted at the chroot: what a broker or another tool would see and write."""
    yield from servers.raw_client(chroot)


@pytest.fixture
def migrated(postgres: Postgres) -> Iterator[servers.Database]:
    """A fresh database at the schema of this version, with ``owner_dsn`` and ``service_dsn``."""
    yield from servers.lent(postgres, servers.make_migrated(postgres))


@pytest.fixture
def database(postgres: Postgres) -> Iterator[servers.Database]:
    """A fresh, empty database with ``owner_dsn`` and ``service_dsn``."""
    yield from servers.lent(postgres, servers.make_database(postgres))


@pytest.fixture(scope="session")
def migrated_server(tmp_path_factory: pytest.TempPathFactory) -> Forgetful:
    """A server with a migrated database ``trail``, stopped, to be copied."""
    with Forgetful(tmp_path_factory.mktemp("migrated")) as server:
        server.create_database("trail")
        upgrade(server.dsn(OWNER, "trail"), SERVICE)
    return server


@pytest.fixture
def own_postgres(migrated_server: Forgetful, tmp_path: Path) -> Iterator[Postgres]:
    """A server of the test's own, to be stopped and started, with a migrated database ``trail``."""
    with migrated_server.copy(tmp_path / "postgres") as server:
        yield server


@pytest.fixture(scope="module")
def module_chroot(zookeeper: ZooKeeper) -> str:
    """One chroot for the tests of a module, which keep apart by their entities' names."""
    return servers.make_chroot(zookeeper.hosts)


@pytest.fixture(scope="module")
def module_database(postgres: Postgres) -> Iterator[servers.Database]:
    """One migrated database for the tests of a module."""
    yield from servers.lent(postgres, servers.make_migrated(postgres))


@pytest.fixture(scope="module")
def service_options() -> dict[str, Any]:
    """More arguments for the module's service. Modules whose service has settings of its own override this."""
    return {}


@pytest.fixture(scope="module")
def service_class(service_options: dict[str, Any]) -> type[Service]:
    """The class of the module's service: a thread, because most tests only send requests.

    Programs of the tests, and logs of all details, are processes. Modules that need a process override this.
    """
    details = "CONFPLANE_LOG_LEVEL" in service_options.get("settings", {})
    return Service if details or "module" in service_options else ServiceInThread


@pytest.fixture(scope="module")
def service(
    service_class: type[Service],
    service_options: dict[str, Any],
    module_chroot: str,
    module_database: servers.Database,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    """One service for the tests of a module."""
    directory = tmp_path_factory.mktemp("service")
    with service_class(directory, connect=module_chroot, dsn=module_database.service_dsn, **service_options) as running:
        yield running


@pytest_asyncio.fixture
async def client(service: Service) -> AsyncIterator[ConfplaneClient]:
    """A client of that service."""
    async with service.client() as connected:
        yield connected


@pytest.fixture(scope="module")
def zk(module_chroot: str) -> Iterator[KazooClient]:
    """A plain kazoo client on the service's chroot: what a broker sees."""
    yield from servers.raw_client(module_chroot)


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """The directory for the files of a test's own processes."""
    return tmp_path


@pytest.fixture
async def world(tmp_path: Path, chroot: str, migrated: servers.Database, raw_zk: KazooClient) -> AsyncIterator[World]:
    """Services and replicas on stores of the test's own."""
    async with World(tmp_path, chroot, migrated, raw_zk) as world:
        yield world


@pytest.fixture(scope="module")
def pair(
    service_class: type[Service],
    module_chroot: str,
    module_database: servers.Database,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Service, Service]]:
    """Two services for the tests of a module, at least one of them a process: replicas share no memory."""
    directory = tmp_path_factory.mktemp("pair")
    options: dict[str, Any] = {"connect": module_chroot, "dsn": module_database.service_dsn}
    with service_class(directory, **options) as one, Service(directory, **options) as two:
        yield one, two
