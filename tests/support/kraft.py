"""Real Kafka 4 without ZooKeeper: nodes and clusters of the tests, each node a process of its own."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confplane.devstack.errors import DevStackError
from confplane.devstack.java import find_java
from confplane.devstack.process import Server, port_is_free
from tests.support.certificates import CN, Authority
from tests.support.certificates import name as subject_name
from tests.support.java import java_environment, quick_java
from tests.support.ports import reserved_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PASSWORDS: Final = {"alice": "alice's password 100 % \u00fc", "bob": "bob-secret", "carol": "carol's secret"}
"""The users of the SASL listeners: of PLAIN and of both kinds of SCRAM."""
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
SESSION_MS: Final = 1500
"""The lifetime of a login on the listener SHORT (KIP-368)."""

_LOG4J: Final = """\
log4j.rootLogger=WARN, stdout
log4j.logger.kafka.server.KafkaRaftServer=INFO
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d{ISO8601} %p %m (%c)%n
"""
_STARTED: Final = "Kafka Server started"
_LISTENERS: Final = {
    "PLAINTEXT": "PLAINTEXT",
    "SASL": "SASL_PLAINTEXT",
    "SHORT": "SASL_PLAINTEXT",
    "SSL": "SSL",
    "SASL_SSL": "SASL_SSL",
}
"""The listeners of a broker with ``logins``, and their protocols; other brokers have the first alone."""
_CONTROLLER_LOGIN: Final = "CONTROLLER_SASL"
"""The second listener of a controller with ``logins``."""
_FORMAT_S: Final = 120
_ATTEMPTS: Final = 3
"""Maximum number of start attempts of a cluster, each with other ports."""
_LOGIN_MODULES: Final = {
    "scram-sha-256": "scram.ScramLoginModule required",
    "scram-sha-512": "scram.ScramLoginModule required",
    "plain": "plain.PlainLoginModule required " + " ".join(f'user_{user}="{text}"' for user, text in PASSWORDS.items()),
    "oauthbearer": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker"',
}


def random_id() -> str:
    """Return a UUID as Kafka spells one."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def unsecured_token(user: str, *, seconds: float = 3600) -> str:
    """Return a token of OAUTHBEARER that is not signed, which a broker without other settings accepts."""
    now = time.time()
    parts = {"alg": "none"}, {"sub": user, "iat": now - 1, "exp": now + seconds}
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*texts, ""])


@dataclass(frozen=True)
class Voter:
    """A controller, as configured in each node."""

    node_id: int
    port: int = field(default_factory=reserved_port)
    directory_id: str = field(default_factory=random_id)

    @property
    def address(self) -> str:
        """Its address."""
        return f"127.0.0.1:{self.port}"


@dataclass(frozen=True)
class Shape:
    """The settings that all nodes of a cluster share.

    Args:
        voters: The controllers.
        class_path: Of Kafka, as Java takes it.
        logins: Brokers have the listeners SASL, SHORT, SSL and SASL_SSL besides.
        authorizer: ``StandardAuthorizer``: ``User:ANONYMOUS``, which is everybody on PLAINTEXT and the nodes
            themselves, is a super user; others have the rights that a test gives them.
        properties: More lines of every ``server.properties``.
        controller_properties: More lines of that of a controller that is not a broker.
        features: Levels of features, which are those of a new cluster otherwise.
        java: Options of each JVM; by default those of little memory and a quick start.
    """

    voters: Sequence[Voter]
    class_path: str
    logins: bool = False
    authorizer: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    controller_properties: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    java: Sequence[str] = ()
    cluster_id: str = field(default_factory=random_id)


class KraftNode(Server):
    """One node on 127.0.0.1: a broker, a controller, or both.

    Args:
        data_dir: Its logs, its ``server.properties``, its ``kafka.log``.
        shape: The cluster.
        node_id: Its number.
        broker: False for a controller alone.
    """

    name = "Kafka"
    # A slow machine with two cores may need minutes for what takes seconds elsewhere.
    start_seconds = 300.0
    stop_seconds = 30.0

    def __init__(self, data_dir: Path, shape: Shape, node_id: int, *, broker: bool = True) -> None:
        self._voter = next((voter for voter in shape.voters if voter.node_id == node_id), None)
        super().__init__(data_dir, port=None if broker or self._voter is None else self._voter.port)
        self.node_id = node_id
        self.broker = broker
        self._shape = shape
        self._ports: dict[str, int] = {}
        self._authority: Authority | None = None

    @property
    def bootstrap(self) -> str:
        """The address of a broker's PLAINTEXT listener."""
        return self.listener("PLAINTEXT")

    @property
    def controller(self) -> str:
        """The address of a controller's listener."""
        assert self._voter is not None, "this node is no controller"
        return self._voter.address

    @property
    def controller_login(self) -> str:
        """The address of a controller's listener with logins by PLAIN."""
        return f"127.0.0.1:{self._ports[_CONTROLLER_LOGIN]}"

    @property
    def ca_file(self) -> str:
        """The file with the authority of the listener SSL."""
        return str(self.data_dir / "ca.pem")

    def listener(self, name: str) -> str:
        """The address of one of :data:`_LISTENERS`; known once started."""
        return f"127.0.0.1:{self.port if name == 'PLAINTEXT' else self._ports[name]}"

    def change_release(self, class_path: str) -> None:
        """Run another release of Kafka from the next start on."""
        self._shape = replace(self._shape, class_path=class_path)

    def pause(self) -> None:
        """Pause the process, like a long pause of the JVM."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """End :meth:`pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Shut down cleanly, like a broker that hands over its work; a paused node is resumed first."""
        if self.running():
            self.resume()
        super().stop()

    def metadata_log(self) -> Path:
        """Return the folder of ``__cluster_metadata``."""
        return self.data_dir / "logs" / "__cluster_metadata-0"

    # -- like every server

    def _prepare(self) -> None:
        (self.data_dir / "log4j.properties").write_text(_LOG4J)
        if self.broker and self._shape.logins and self._authority is None:
            self._authority = Authority()
            self._authority.write_own(self.data_dir / "ca.pem")
            certificate, key = self._authority.write(self.data_dir, "broker", subject_name((CN, "broker")))
            pems = [Path(path).read_text() for path in (key, certificate)]
            (self.data_dir / "broker-store.pem").write_text("\n".join(pems))
            own = [_CONTROLLER_LOGIN] if self._voter is not None else []
            self._ports = {name: reserved_port(self) for name in (*_LISTENERS, *own) if name != "PLAINTEXT"}
        self.properties_file.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        if not (self.data_dir / "logs").exists():
            self._format()

    @property
    def properties_file(self) -> Path:
        """Its ``server.properties``."""
        return self.data_dir / "server.properties"

    def _properties(self) -> dict[str, str]:
        roles = (["broker"] if self.broker else []) + (["controller"] if self._voter else [])
        names = (list(_LISTENERS) if self._shape.logins else ["PLAINTEXT"]) if self.broker else []
        listeners = [f"{name}://{self.listener(name)}" for name in names]
        controllers = [f"CONTROLLER://{self.controller}"] if self._voter else []
        protocols = {"CONTROLLER": "PLAINTEXT", **_LISTENERS}
        controller_names = "CONTROLLER"
        if _CONTROLLER_LOGIN in self._ports:
            controllers.append(f"{_CONTROLLER_LOGIN}://{self.controller_login}")
            protocols[_CONTROLLER_LOGIN] = "SASL_PLAINTEXT"
            controller_names += f",{_CONTROLLER_LOGIN}"
        settings = {
            "process.roles": ",".join(roles),
            "node.id": str(self.node_id),
            "controller.quorum.bootstrap.servers": ",".join(voter.address for voter in self._shape.voters),
            "controller.listener.names": controller_names,
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "listeners": ",".join(listeners + controllers),
            "log.dirs": str(self.data_dir / "logs"),
            # Little of everything: a test's cluster shares a small machine with others.
            "num.network.threads": "2",
            "num.io.threads": "2",
            "background.threads": "2",
            "log.cleaner.dedupe.buffer.size": "4194304",
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            # Polls of brokers and groups wait for the next record, which an idle controller writes each half second.
            "metadata.max.idle.interval.ms": "100",
            # Elections and the first registration may take a minute and more on a busy machine; a broker that gives up
            # ends. The test waits instead, for as long as `start_seconds`.
            "initial.broker.registration.timeout.ms": str(int(KraftNode.start_seconds * 1000)),
            # A node that is killed is missed after seconds.
            "broker.session.timeout.ms": "6000",
            "broker.heartbeat.interval.ms": "1000",
            "controller.quorum.election.timeout.ms": "2000",
            "controller.quorum.fetch.timeout.ms": "4000",
        }
        if listeners:
            settings["advertised.listeners"] = ",".join(listeners)
        if self.broker and self._shape.logins:
            settings |= self._logins()
        if self._shape.authorizer:
            settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            settings["super.users"] = "User:ANONYMOUS"
        own = {} if self.broker else self._shape.controller_properties
        return settings | {**self._shape.properties, **own}

    def _logins(self) -> dict[str, str]:
        modules = "org.apache.kafka.common.security."
        settings = {
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
        }
        for name in ("ssl", "sasl_ssl"):
            settings[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
            settings[f"listener.name.{name}.ssl.keystore.location"] = str(self.data_dir / "broker-store.pem")
        names = [
            "sasl",
            "short",
            "sasl_ssl",
            *([_CONTROLLER_LOGIN.lower()] if _CONTROLLER_LOGIN in self._ports else []),
        ]
        for name in names:
            settings[f"listener.name.{name}.sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            for mechanism, module in _LOGIN_MODULES.items():
                settings[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = f"{modules}{module};".replace(
                    "\u00fc", "\\u00fc"
                )
        return settings

    def _format(self) -> None:
        if self._voter is None:
            how = ["--no-initial-controllers"]
        else:
            listed = (f"{voter.node_id}@{voter.address}:{voter.directory_id}" for voter in self._shape.voters)
            how = ["--initial-controllers", ",".join(listed)]
        if self._shape.logins and self._voter is not None:
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                for user, password in PASSWORDS.items():
                    how += ["--add-scram", f'{mechanism}=[name={user},password="{password}"]']
        for name, level in self._shape.features.items():
            how += ["--feature", f"{name}={level}"]
        command = [*self._java(), "kafka.tools.StorageTool", "format", f"--cluster-id={self._shape.cluster_id}"]
        done = subprocess.run(
            [*command, "--config", str(self.properties_file), *how],
            env=self._environment(), capture_output=True, text=True, check=False, timeout=_FORMAT_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def _java(self) -> list[str]:
        small = quick_java("384m" if self.broker else "256m")
        return [
            str(find_java()),
            *(self._shape.java or small),
            "-XX:+ExitOnOutOfMemoryError",
            "-Dfile.encoding=UTF-8",
            "-Djava.net.preferIPv4Stack=true",
            f"-Dlog4j.configuration={(self.data_dir / 'log4j.properties').as_uri()}",
            "-cp",
            self._shape.class_path,
        ]

    def _command(self) -> Sequence[str]:
        return [*self._java(), "kafka.Kafka", str(self.properties_file)]

    def _environment(self) -> Mapping[str, str]:
        return java_environment()

    def _answers(self) -> bool:
        return self.log.exists() and _STARTED in self.log.read_text(errors="replace")


class KraftCluster:
    """The nodes of one cluster."""

    def __init__(self, shape: Shape, nodes: Sequence[KraftNode]) -> None:
        self.shape = shape
        self.nodes = nodes

    @property
    def cluster_id(self) -> str:
        """The id that all nodes were formatted with."""
        return self.shape.cluster_id

    @property
    def brokers(self) -> list[KraftNode]:
        """The nodes that are brokers."""
        return [node for node in self.nodes if node.broker]

    @property
    def controllers(self) -> list[KraftNode]:
        """The nodes that are controllers."""
        return [node for node in self.nodes if node.node_id in {voter.node_id for voter in self.shape.voters}]

    @property
    def bootstrap(self) -> list[str]:
        """The addresses of the brokers' PLAINTEXT listeners."""
        return [node.bootstrap for node in self.brokers]

    def node(self, node_id: int) -> KraftNode:
        """Return a node by its number."""
        (found,) = [node for node in self.nodes if node.node_id == node_id]
        return found

    def start(self) -> None:
        """Start all nodes concurrently; end the running ones if one does not start.

        Raises:
            DevStackError: A node does not start; the message has the end of its log.
        """
        with ExitStack() as undo, ThreadPoolExecutor(len(self.nodes)) as threads:
            undo.callback(self.stop)
            # Together: a controller is started only once the others have elected a leader with it.
            starts = [threads.submit(node.start) for node in self.nodes]
            failed = next(filter(None, (each.exception() for each in as_completed(starts))), None)
            if failed is not None:
                for node in self.nodes:
                    node.cancelled.set()
                raise failed
            undo.pop_all()

    def stop(self) -> None:
        """End all nodes, brokers before their controllers."""
        for node in sorted(self.nodes, key=lambda node: node in self.controllers):
            node.stop() if node not in self.controllers or len(self.nodes) == 1 else node.kill()


@contextmanager
def kraft_cluster(
    directory: Path,
    class_path: str,
    *,
    brokers: int = 1,
    controllers: int = 0,
    combined: int = 1,
    **shape: object,
) -> Iterator[KraftCluster]:
    """Run a cluster.

    Args:
        directory: A folder for its nodes.
        class_path: Of Kafka.
        brokers: Their numbers are 1, 2 and so on.
        controllers: Their numbers are 101, 102 and so on; 0: some brokers are controllers too.
        combined: The number of these brokers.
        shape: More of :class:`Shape`: ``logins``, ``authorizer``, ``properties``, ``controller_properties``, ``features``,
            ``java``.
    """
    voters = (101, controllers) if controllers else (1, combined)
    cluster = _started(directory, class_path, brokers, *voters, shape)
    try:
        yield cluster
    finally:
        cluster.stop()


def _started(
    directory: Path, class_path: str, brokers: int, first: int, voters: int, shape: Mapping[str, Any]
) -> KraftCluster:
    """Start a cluster, with other ports if another process uses a port of a controller.

    All nodes are configured with the controllers' ports before any of them starts.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        made = Shape([Voter(first + at) for at in range(voters)], class_path, **shape)
        controllers = [each.node_id for each in made.voters if each.node_id > brokers]
        nodes = [KraftNode(directory / f"node-{n}", made, n) for n in range(1, brokers + 1)]
        nodes += [KraftNode(directory / f"node-{n}", made, n, broker=False) for n in controllers]
        cluster = KraftCluster(made, nodes)
        try:
            cluster.start()
        except DevStackError:
            if attempt == _ATTEMPTS or all(port_is_free(each.port) for each in made.voters):
                raise
            for node in nodes:
                shutil.rmtree(node.data_dir)
        else:
            break
    return cluster
