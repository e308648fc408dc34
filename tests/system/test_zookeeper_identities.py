"""Identities of a real ZooKeeper: x509 of TLS connections, and SASL."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from pydantic import ValidationError

from confplane.connection_settings import ClientTlsSettings
from confplane.devstack import zookeeper
from confplane.devstack.java import find_java
from confplane.devstack.zookeeper import ZooKeeper
from confplane.settings import UnusableSettingsError
from confplane.store import ZooKeeperTls
from tests.catalog.kafka_jars import SHORT_LIVED
from tests.support import servers
from tests.support.certificates import CN, Authority, O, name
from tests.support.ports import reserved_port
from tests.support.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confplane.devstack.postgres import Postgres

NETTY = (
    r"netty-(buffer|codec|codec-base|common|handler|resolver|transport|transport-classes-epoll)-\d",
    r"netty-transport-native-unix-common-\d",
    r"commons-cli-\d",
)
PASSWORDS = ("-Dzookeeper.fips-mode=false",)
"""Options of Java by which ZooKeeper 3.9 allows SASL's DIGEST-MD5, the mechanism that needs no Kerberos."""
JAAS = """Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="a secret" user_other="another";
};
Client {
  org.apache.zookeeper.server.auth.DigestLoginModule required username="%s" password="%s";
};
"""


class SecureZooKeeper(ZooKeeper):
    """A server with a port for TLS, which asks for certificates, and with SASL on the plain one."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir, durable=False)
        data_dir.mkdir(parents=True)
        self.secure_port = reserved_port(self)
        self.authority = Authority("zookeeper")
        self.ca = self.authority.write_own(data_dir / "ca.pem")
        server = self.certificate("server")
        self._pair = data_dir / "pair.pem"
        self._pair.write_text("".join(Path(path).read_text() for path in reversed(server)))
        self._jaas = data_dir / "jaas.conf"
        self._jaas.write_text(JAAS % ("kafka", "a secret"))

    def certificate(self, common_name: str) -> tuple[str, str]:
        return self.authority.write(self.data_dir, common_name, name((O, "Acme"), (CN, common_name)))

    def client(self, common_name: str) -> KazooClient:
        """Return a connected client with a certificate."""
        certificate, key = self.certificate(common_name)
        hosts = f"127.0.0.1:{self.secure_port}"
        client = KazooClient(hosts, use_ssl=True, ca=self.ca, certfile=certificate, keyfile=key)
        client.start(timeout=60)
        return client

    def run(self, user: str, password: str, *command: str) -> str:
        """Run a command of ZooKeeper's own client as a user of SASL, and return what it prints."""
        jaas = self.data_dir / f"{user}.conf"
        jaas.write_text(JAAS % (user, password))
        java = [
            str(find_java()),
            *SHORT_LIVED,
            *PASSWORDS,
            f"-Djava.security.auth.login.config={jaas}",
            "-cp",
            _class_path(),
        ]
        main = ["org.apache.zookeeper.ZooKeeperMain", "-server", self.hosts, *command]
        done = subprocess.run([*java, *main], capture_output=True, text=True, check=False, timeout=120)
        return done.stdout + done.stderr

    def _prepare(self) -> None:
        super()._prepare()
        with self._config.open("a") as config:
            config.write(
                f"secureClientPort={self.secure_port}\n"
                "secureClientPortAddress=127.0.0.1\n"
                "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
                "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n"
                "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
                f"ssl.keyStore.location={self._pair}\n"
                "ssl.keyStore.type=PEM\n"
                f"ssl.trustStore.location={self.ca}\n"
                "ssl.trustStore.type=PEM\n"
                "ssl.clientAuth=need\n"
            )

    def _command(self) -> Sequence[str]:
        java, *rest = super()._command()
        return [java, *PASSWORDS, f"-Djava.security.auth.login.config={self._jaas}", *rest]


def _class_path() -> str:
    return os.pathsep.join(str(jar) for jar in zookeeper._jars())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZooKeeper]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zookeeper, "JARS", (*zookeeper.JARS, *NETTY))
        with SecureZooKeeper(tmp_path_factory.mktemp("secure") / "zookeeper") as running:
            yield running


def run_service(server: SecureZooKeeper, postgres: Postgres, directory: Path, identity: str) -> Iterator[Service]:
    """Run a service that connects by TLS, and whose nodes are the brokers' identity's too."""
    credentials = directory / "credentials"
    credentials.write_text("confplane:secret")
    certificate, key = server.certificate("confplane")
    cluster: dict[str, Any] = {
        "zookeeper_acl": {"identity": identity, "credentials_file": str(credentials)},
        "zookeeper_tls": {"ca_file": server.ca, "certificate_file": certificate, "key_file": key},
    }
    connect = f"127.0.0.1:{server.secure_port}/{identity.partition(':')[0]}"
    dsn = servers.make_migrated(postgres).service_dsn
    with Service(directory / "service", connect=connect, dsn=dsn, cluster=cluster) as running:
        yield running


def put(service: Service, user: str) -> None:
    answer = httpx.put(
        f"{service.url}/v1/clusters/default/client-quotas/user={user}",
        json={"quotas": {"producer_byte_rate": 1000}},
        headers={"Authorization": f"Bearer {service.token}"},
        trust_env=False,
        timeout=60,
    )
    assert answer.status_code < 300, answer.text


def test_nodes_are_the_brokers_certificates_and_this_services(
    server: SecureZooKeeper, postgres: Postgres, tmp_path: Path
) -> None:
    for service in run_service(server, postgres, tmp_path, "x509:CN=broker,O=Acme"):
        put(service, "alice")
        path = "/x509/config/users/alice"
        broker, stranger = server.client("broker"), server.client("stranger")
        try:
            assert b"producer_byte_rate" in broker.get(path)[0]
            broker.set(path, broker.get(path)[0])
            ids = {(each.id.scheme, each.id.id) for each in broker.get_acls(path)[0]}
            assert ("x509", "CN=broker,O=Acme") in ids
            assert ("x509", "CN=confplane,O=Acme") in ids
            for refused in (stranger.get, stranger.delete):
                with pytest.raises(NoAuthError):
                    refused(path)
        finally:
            for client in (broker, stranger):
                client.stop()
                client.close()
        # And this service can alter what the broker wrote.
        put(service, "alice")


def test_nodes_are_the_brokers_sasl_identitys(server: SecureZooKeeper, postgres: Postgres, tmp_path: Path) -> None:
    for service in run_service(server, postgres, tmp_path, "sasl:kafka"):
        put(service, "bob")
        path = "/sasl/config/users/bob"
        assert "producer_byte_rate" in server.run("kafka", "a secret", "get", path)
        assert "producer_byte_rate" not in server.run("other", "another", "get", path)
        assert "sasl,'kafka" in server.run("kafka", "a secret", "getAcl", path)


def test_a_server_with_another_certificate_is_not_spoken_to(server: SecureZooKeeper, tmp_path: Path) -> None:
    other = Authority("other").write_own(tmp_path / "other.pem")
    certificate, key = server.certificate("confplane")
    own = {"certificate_file": certificate, "key_file": key}

    def connect(host: str, **more: Any) -> ssl.SSLSocket:
        tls = ZooKeeperTls("c.zookeeper_tls", ClientTlsSettings.model_validate({**own, **more}))
        with socket.create_connection(("127.0.0.1", server.secure_port), timeout=60) as raw:
            return tls.wrap(raw, host)

    connect("127.0.0.1", ca_file=server.ca).close()
    connect("elsewhere.example.com", ca_file=server.ca, verify_hostname=False).close()
    for host, ca in (("127.0.0.1", other), ("elsewhere.example.com", server.ca), ("127.0.0.1", None)):
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(host, ca_file=ca)


def test_files_that_cannot_be_used_are_named(server: SecureZooKeeper, tmp_path: Path) -> None:
    certificate, key = server.certificate("confplane")
    for given in (
        {"ca_file": tmp_path / "none"},
        {"ca_file": key},
        {"certificate_file": certificate, "key_file": tmp_path / "none"},
        {"certificate_file": certificate, "key_file": server.certificate("other")[1]},
    ):
        with pytest.raises(UnusableSettingsError, match=r"^c\.zookeeper_tls: "):
            ZooKeeperTls("c.zookeeper_tls", ClientTlsSettings.model_validate(given))
    with pytest.raises(ValidationError, match="go together"):
        ClientTlsSettings(certificate_file=Path(certificate))
