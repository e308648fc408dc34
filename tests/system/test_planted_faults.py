"""``confplane doctor`` on real stores: it finds each planted fault with the command that fixes it, and nothing else."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
import psycopg
import pytest
from kazoo.security import make_acl, make_digest_acl
from typer.testing import CliRunner

from confplane.audit.migrate import upgrade
from confplane.cli.commands import cli
from confplane.devstack.postgres import OWNER, SERVICE, Postgres
from confplane.domain.facets import Tree
from confplane.services.ports.cluster_states import Freeze, Layout, Target
from confplane.store.znodes import FREEZE, INCARNATION, LAYOUT, TARGET, encode_freeze, encode_layout, encode_target
from tests.audit.rows import past_the_trigger
from tests.support.certificates import CN, Authority
from tests.support.certificates import name as subject
from tests.support.published import publish
from tests.support.servers import raw_client
from tests.support.service import Service
from tests.support.stepping import CONSTANTS_VARIABLE
from tests.support.stores import kafka_writes, rate
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from kazoo.client import KazooClient

    Found = dict[str, tuple[str, str]]
    """The severity and the command of each finding, by its check."""

DATABASE: Final = "trail"
PUBLISHED: Final = {"confplane.services.upkeep.incarnation.PUBLISH_INTERVAL_S": 0.2}
STAND_IN: Final = "/confplane/writers/stand-in"
NEVER: Final = "01900000-0000-7000-8000-000000000000"
"""The id of a change of June 2024 that no trail has."""


@dataclass
class Site:
    """An installation without faults: durable stores, and the session of a process."""

    environment: dict[str, str]
    directory: Path
    chroot: str
    server: Postgres
    zk: KazooClient

    def diagnose(self, **more: str) -> tuple[int, Found]:
        """Return the exit code and the findings."""
        answer = CliRunner().invoke(cli, ["doctor", "--json"], env=self.environment | more, catch_exceptions=False)
        found = json.loads(answer.stdout)["findings"]
        assert len(found) == len({each["check"] for each in found}), found
        return answer.exit_code, {each["check"]: (each["severity"], each["command"]) for each in found}

    def sql(self, *statements: str) -> None:
        """Run statements as the superuser; ``:never`` is the id of a change that no trail has."""
        with psycopg.connect(self.server.dsn("postgres", DATABASE), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.replace(":never", f"'{NEVER}'").encode())

    def shows(self, name: str, value: str) -> bool:
        """Return True if new connections have a value of a setting of Postgres."""
        with psycopg.connect(self.server.dsn("postgres", DATABASE)) as connection:
            return connection.execute(f"SHOW {name}".encode()).fetchall() == [(value,)]

    def configure(self, name: str, value: str) -> None:
        """Change a setting of Postgres, and wait until it applies."""
        self.sql(f"ALTER SYSTEM SET {name} = '{value}'", "SELECT pg_reload_conf()")
        wait_for(partial(self.shows, name, value))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, module_chroot: str) -> Iterator[Site]:
    """The installation, on which a process has run."""
    directory = tmp_path_factory.mktemp("site")
    with Postgres(directory / "postgres") as server:
        server.create_database(DATABASE)
        upgrade(server.dsn(OWNER, DATABASE), SERVICE)
        service = Service(
            directory / "service",
            connect=module_chroot,
            dsn=server.dsn(SERVICE, DATABASE),
            settings={CONSTANTS_VARIABLE: json.dumps(PUBLISHED), "CONFPLANE_HTTP__DRAIN_MS": "2000"},
            module="tests.support.stepping",
        )
        for zk in raw_client(module_chroot):
            made = Site(service._environment, directory, module_chroot, server, zk)
            with service:
                service.wait_recorded()
                wait_for(partial(zk.exists, INCARNATION))
                assert made.diagnose() == (0, {})
            zk.create(STAND_IN, ephemeral=True)
            yield made


class Fault(NamedTuple):
    """A fault, and the only finding that it has."""

    check: str
    severity: str
    command: str
    plant: Callable[[Site], AbstractContextManager[dict[str, str]]]
    """Makes the fault, yields more variables of the environment, and takes the fault back."""


def setting(**variables: str) -> Callable[[Site], AbstractContextManager[dict[str, str]]]:
    @contextmanager
    def planted(_: Site) -> Iterator[dict[str, str]]:
        yield {f"CONFPLANE_{name}": value for name, value in variables.items()}

    return planted


def cluster(**options: Any) -> Callable[[Site], AbstractContextManager[dict[str, str]]]:
    @contextmanager
    def planted(site: Site) -> Iterator[dict[str, str]]:
        yield {"CONFPLANE_CLUSTERS": json.dumps({"default": {"zookeeper": site.chroot, **options}})}

    return planted


@contextmanager
def shared_chroot(site: Site) -> Iterator[dict[str, str]]:
    server, _, chroot = site.chroot.partition("/")
    orders = {"default": f"{server},127.0.0.1:1", "other": f"127.0.0.1:1,{server}"}
    clusters = {name: {"zookeeper": f"{servers}/{chroot}"} for name, servers in orders.items()}
    yield {"CONFPLANE_CLUSTERS": json.dumps(clusters)}


def key_file(mode: int) -> Any:
    @contextmanager
    def planted(site: Site) -> Iterator[dict[str, str]]:
        path = site.directory / "webhooks.key"
        path.write_text("key " * 16)
        path.chmod(mode)
        yield {"CONFPLANE_WEBHOOKS__KEY_FILE": str(path)}

    return planted


def certificate(days: int) -> Any:
    @contextmanager
    def planted(site: Site) -> Iterator[dict[str, str]]:
        path, _ = Authority().write(site.directory, "receivers", subject((CN, "receivers")), days=days)
        yield {"CONFPLANE_WEBHOOKS__CA_FILE": path}

    return planted


def database(role: str) -> Any:
    @contextmanager
    def planted(site: Site) -> Iterator[dict[str, str]]:
        yield {"CONFPLANE_POSTGRES__DSN": site.server.dsn(role, DATABASE)}

    return planted


def sql(*statements: str, undo: str) -> Any:
    @contextmanager
    def planted(site: Site) -> Iterator[dict[str, str]]:
        site.sql(*statements)
        try:
            yield {}
        finally:
            site.sql(undo)

    return planted


def configured(name: str, value: str, default: str) -> Any:
    @contextmanager
    def planted(site: Site) -> Iterator[dict[str, str]]:
        site.configure(name, value)
        try:
            yield {}
        finally:
            site.configure(name, default)

    return planted


@contextmanager
def other_layout(site: Site) -> Iterator[dict[str, str]]:
    stored = replaced(LAYOUT, lambda _: encode_layout(Layout(Tree.CONFIG)))
    with stored(site), cluster(client_configs_layout="separate")(site) as given:
        yield given


@contextmanager
def open_change(site: Site) -> Iterator[dict[str, str]]:
    site.sql(
        "INSERT INTO intents (change_id, attempt, cluster, principal, writer, source, request_id, recorded_at)"
        " VALUES (:never, 1, 'default', 'User:a', 'w', 's', 'r', now() - interval '5 minutes')"
    )
    try:
        yield {}
    finally:
        past_the_trigger(site.server.dsn(OWNER, DATABASE), "intents", "DELETE FROM intents")


def rollup(job: str, *, complete: bool) -> Any:
    @contextmanager
    def planted(site: Site) -> Iterator[dict[str, str]]:
        publish(
            site.server.dsn(SERVICE, DATABASE), job, [], at=datetime.now(UTC) - timedelta(days=3), complete=complete
        )
        try:
            yield {}
        finally:
            site.sql("DELETE FROM rollup_runs")

    return planted


_WEBHOOK: Final = (
    "INSERT INTO webhooks (id, cluster, name, slot, owner, owner_slot, groups, by_token, format, filter, shown_url,"
    " sealed, created_at, created_by, change_id, position, parked_at) VALUES (:never, 'default', 'chat', 1,"
    " 'User:a', 1, '{}', false, 'confplane', '{}', 'https://x', '', now(), 'User:a', :never, '', PARKED)"
)


@contextmanager
def parked_webhook(site: Site) -> Iterator[dict[str, str]]:
    with key_file(0o600)(site) as given, sql(_WEBHOOK.replace("PARKED", "now()"), undo="DELETE FROM webhooks")(site):
        yield given


def znode(path: str, data: bytes = b"", acl: Any = None) -> Any:
    @contextmanager
    def planted(site: Site) -> Iterator[dict[str, str]]:
        made = site.zk.create(path, data, acl=acl, sequence=path.endswith("_"))
        try:
            yield {}
        finally:
            site.zk.delete(made)

    return planted


def replaced(path: str, data: Callable[[bytes], bytes]) -> Any:
    @contextmanager
    def planted(site: Site) -> Iterator[dict[str, str]]:
        before, _ = site.zk.get(path)
        site.zk.set(path, data(before))
        try:
            yield {}
        finally:
            site.zk.set(path, before)

    return planted


@contextmanager
def other_store(site: Site) -> Iterator[dict[str, str]]:
    before, _ = site.zk.get(INCARNATION)
    site.zk.delete(INCARNATION)
    try:
        yield {}
    finally:
        site.zk.create(INCARNATION, before)


def lost_change(incarnation: bytes) -> bytes:
    return orjson.dumps(orjson.loads(incarnation) | {"postgres": {"change": NEVER, "timeline": 1}})


@contextmanager
def without_process(site: Site) -> Iterator[dict[str, str]]:
    site.zk.delete(STAND_IN)
    try:
        yield {}
    finally:
        site.zk.create(STAND_IN, ephemeral=True)


@contextmanager
def closed_changes(site: Site) -> Iterator[dict[str, str]]:
    """Let nobody but an administrator create notifications."""
    site.zk.add_auth("digest", "admin:secret")
    readable = make_acl("world", "anyone", read=True)
    site.zk.set_acls("/config/changes", [readable, make_digest_acl("admin", "secret", all=True)])
    try:
        yield {}
    finally:
        site.zk.set_acls("/config/changes", [make_acl("world", "anyone", all=True)])


@contextmanager
def many_notifications(site: Site) -> Iterator[dict[str, str]]:
    """Register a broker, for which nine of at most ten notifications wait."""
    site.zk.create("/brokers/ids/1", b"{}", ephemeral=True, makepath=True)
    made = [kafka_writes(site.zk, "users/busy", rate(number)) for number in range(9)]
    with cluster(notifications_max=10, client_configs_layout="shared")(site) as given:
        try:
            yield given
        finally:
            for path in (*made, "/config/users/busy", "/brokers/ids/1"):
                site.zk.delete(path)


@contextmanager
def long_list(site: Site) -> Iterator[dict[str, str]]:
    """Register a broker whose lists may have 100,000 bytes, and users whose names take three quarters of that."""
    site.zk.create("/brokers/ids/1", b"{}", ephemeral=True, makepath=True)
    paths = [f"/config/users/{number:0940}" for number in range(80)]
    for path in paths:
        site.zk.create(path, rate(1))
    with cluster(jute_maxbuffer=100_000, client_configs_layout="shared")(site) as given:
        try:
            yield given
        finally:
            for path in (*paths, "/brokers/ids/1"):
                site.zk.delete(path)


def own(*, write: bool) -> list[Any]:
    """Return an ACL of another tool; others may read, or nothing."""
    return [
        make_digest_acl("admin", "secret", all=True),
        *([make_acl("world", "anyone", read=True)] if write else []),
    ]


FAULTS: Final = [
    # Settings that contradict each other, the files or the stores.
    Fault("settings-unusable", "error", "correct the setting", cluster(policies=[{"name": "missing"}])),
    Fault("pool-small", "warning", "CONFPLANE_POSTGRES__POOL_SIZE=8", setting(POSTGRES__POOL_SIZE="4")),
    Fault("no-drain", "warning", "CONFPLANE_HTTP__DRAIN_MS=2000", setting(HTTP__DRAIN_MS="0")),
    Fault("no-limits", "warning", "CONFPLANE_LIMITS__ENABLED=true", setting(LIMITS__ENABLED="false")),
    Fault("insecure-webhooks", "warning", "INSECURE_HTTP=false", setting(WEBHOOKS__INSECURE_HTTP="true")),
    Fault("session-long", "warning", "session_timeout_ms: 45000", cluster(session_timeout_ms=60_000)),
    Fault("not-recorded", "warning", "record_external_changes: true", cluster(record_external_changes=False)),
    Fault("chroot-shared", "error", "give each cluster the chroot", shared_chroot),
    Fault("zookeeper", "warning", "confplane layout move --cluster default", other_layout),
    # Files and certificates.
    Fault("file-unreadable", "error", "ls -l /nowhere", setting(WEBHOOKS__CA_FILE="/nowhere")),
    Fault("file-writable", "error", "chmod go-w", key_file(0o666)),
    Fault("certificate-expiring", "warning", "replace", certificate(20)),
    Fault("certificate-expiring", "error", "replace", certificate(-1)),
    # Postgres: its availability, schema, rights, durability, replication and clock.
    Fault("postgres-unavailable", "error", "psql", setting(POSTGRES__DSN="postgresql://a:b@127.0.0.1:1/trail")),
    Fault(
        "postgres-unavailable",
        "error",
        "confplane migrate",
        sql(
            "CREATE TABLE here AS SELECT version_num FROM alembic_version",
            "UPDATE alembic_version SET version_num = '0030'",
            undo="UPDATE alembic_version SET version_num = (SELECT version_num FROM here); DROP TABLE here",
        ),
    ),
    Fault(
        "postgres",
        "warning",
        "upgrade this process",
        sql(
            "CREATE TABLE here AS SELECT version_num FROM alembic_version",
            "UPDATE alembic_version SET version_num = '9999'",
            undo="UPDATE alembic_version SET version_num = (SELECT version_num FROM here); DROP TABLE here",
        ),
    ),
    Fault("postgres", "warning", "CREATE ROLE", database(OWNER)),
    Fault(
        "postgres",
        "warning",
        "confplane migrate",
        sql("GRANT DELETE ON outcomes TO confplane", undo="REVOKE DELETE ON outcomes FROM confplane"),
    ),
    Fault(
        "postgres",
        "warning",
        "confplane migrate",
        sql("REVOKE INSERT ON outcomes FROM confplane", undo="GRANT INSERT ON outcomes TO confplane"),
    ),
    Fault(
        "postgres",
        "warning",
        "SET synchronous_commit = on",
        sql(
            "ALTER ROLE confplane SET synchronous_commit = off",
            undo="ALTER ROLE confplane RESET synchronous_commit",
        ),
    ),
    Fault("postgres", "warning", "start a standby", configured("synchronous_standby_names", "elsewhere", "")),
    Fault("postgres-not-durable", "error", "SET fsync = on", configured("fsync", "off", "on")),
    Fault("postgres-not-durable", "error", "full_page_writes = on", configured("full_page_writes", "off", "on")),
    Fault(
        "slot-inactive",
        "warning",
        "pg_drop_replication_slot('elsewhere')",
        sql(
            "SELECT pg_create_physical_replication_slot('elsewhere', true)",
            undo="SELECT pg_drop_replication_slot('elsewhere')",
        ),
    ),
    Fault(
        "clock",
        "warning",
        "NTP",
        sql(
            "CREATE SCHEMA skewed",
            "CREATE FUNCTION skewed.clock_timestamp() RETURNS timestamptz LANGUAGE sql"
            " AS $$ SELECT pg_catalog.clock_timestamp() + interval '5 minutes' $$",
            "GRANT USAGE ON SCHEMA skewed TO confplane",
            "ALTER ROLE confplane SET search_path = skewed, pg_catalog, public",
            undo="ALTER ROLE confplane RESET search_path; DROP SCHEMA skewed CASCADE",
        ),
    ),
    # Tokens.
    Fault(
        "token-expiring",
        "warning",
        f"confplane tokens rotate {NEVER}",
        sql(
            "INSERT INTO tokens (id, digest, principal, groups, created_at, created_by, expires_at, last_used_at,"
            " version) VALUES (:never, '', 'User:a', '{}', now(), 'User:a', now() + interval '3 days', now(), 1)",
            undo="DELETE FROM tokens",
        ),
    ),
    Fault(
        "tokens-rejected",
        "error",
        "confplane tokens confirm",
        sql("UPDATE access_version SET tokens_from = now()", undo="UPDATE access_version SET tokens_from = NULL"),
    ),
    # The trail.
    Fault("changes-open", "error", "confplane serve", open_change),
    Fault(
        "recorder-behind",
        "error",
        "the log of the leader",
        sql(
            "UPDATE watermarks SET recorded_at = now() - interval '5 minutes'",
            undo="UPDATE watermarks SET recorded_at = now()",
        ),
    ),
    Fault(
        "schedules-overdue",
        "warning",
        "confplane schedules list --cluster default",
        sql(
            "INSERT INTO schedules (change_id, cluster, revert_at)"
            " VALUES (:never, 'default', now() - interval '5 minutes')",
            undo="DELETE FROM schedules",
        ),
    ),
    Fault(
        "schedules-paused",
        "warning",
        "confplane schedules resume --cluster default",
        sql(
            "INSERT INTO schedule_pauses VALUES ('default', 'User:a', 'INC-7', now() - interval '2 days')",
            undo="DELETE FROM schedule_pauses",
        ),
    ),
    Fault("webhook-parked", "warning", "confplane webhooks resume chat --cluster default", parked_webhook),
    Fault(
        "webhooks-off",
        "error",
        "CONFPLANE_WEBHOOKS__KEY_FILE",
        sql(_WEBHOOK.replace("PARKED", "NULL"), undo="DELETE FROM webhooks"),
    ),
    Fault("rollup-failed", "warning", "confplane rollups run drift", rollup("drift", complete=False)),
    Fault("integrity-old", "warning", "confplane rollups run integrity", rollup("integrity", complete=True)),
    Fault(
        "changes-refused",
        "error",
        "confplane drift list --cluster default",
        sql(
            "INSERT INTO applied_entities (cluster, entity_id, sent_mzxid, refused_code)"
            " VALUES ('default', 'user=a', 1, 42)",
            undo="DELETE FROM applied_entities",
        ),
    ),
    # Restored stores.
    Fault("store-restored", "error", "confplane adopt-store --cluster default", other_store),
    Fault("postgres-restored", "error", "confplane tokens confirm", replaced(INCARNATION, lost_change)),
    # ZooKeeper: rights, stray znodes, markers.
    Fault("zookeeper-rights", "error", "zkCli.sh setAcl", znode("/config/topics/guarded", rate(1), own(write=True))),
    Fault("zookeeper-rights", "error", "zkCli.sh setAcl", closed_changes),
    Fault("no-process", "warning", "confplane serve", without_process),
    Fault(
        "frozen",
        "warning",
        "confplane thaw --cluster default",
        replaced(FREEZE, lambda _: encode_freeze(Freeze("INC-7", "User:a", 0))),
    ),
    Fault("markers-old", "warning", "confplane serve; if they stay", znode(f"/confplane/commits/{NEVER}")),
    Fault("markers-stray", "warning", "zkCli.sh deleteall", znode("/confplane/commits/other")),
    Fault("notifications", "warning", "notifications_max", many_notifications),
    Fault("zookeeper", "warning", "zkCli.sh delete the child", znode("/config/changes/other")),
    Fault(
        "zookeeper",
        "warning",
        "fix the tool",
        znode("/config/changes/config_change_", b'{"version":2,"entity_path":""}'),
    ),
    Fault("zookeeper", "warning", "fix the znode", znode("/config/users/broken", b"{")),
    Fault("zookeeper", "warning", "zkCli.sh setAcl", znode("/config/users/hidden", rate(1), own(write=False))),
    Fault("zookeeper", "warning", "zkCli.sh delete the znode", znode("/config/users/a b", rate(1))),
    Fault("zookeeper", "warning", "confplane compact --cluster default", long_list),
    Fault("kafka-not-set", "error", "KAFKA__BOOTSTRAP", replaced(TARGET, lambda _: encode_target(Target("abc")))),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{each.check}-{each.command}" for each in FAULTS])
def test_a_planted_fault_is_the_only_finding(site: Site, fault: Fault) -> None:
    site.sql("UPDATE watermarks SET recorded_at = now()")
    with fault.plant(site) as variables:
        code, found = site.diagnose(**variables)
    assert found.keys() == {fault.check}
    severity, command = found[fault.check]
    assert (severity, code) == (fault.severity, {"error": 1, "warning": 2}[fault.severity])
    assert fault.command in command
