"""TLS of the listener, client certificates, and files that are replaced while it serves."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from base64 import b64encode
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support import servers
from tests.support.certificates import CN, Authority, C, O, name
from tests.support.service import ServiceInThread
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.service import Service

ALICE = name((C, "DE"), (O, "Acme"), (CN, "alice"))
RULES = "RULE:^CN=([a-z]+),O=Acme,C=DE$/$1/,RULE:^CN=(proxy)$/$1/"


class Files:
    """The files of a listener and of its clients."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority("servers")
        self.clients = Authority("clients")
        self.trusted = self.authority.write_own(directory / "servers.pem")
        self.client_ca = self.clients.write_own(directory / "clients.pem")
        self.server = self.authority.write(directory, "server", name((CN, "first")))
        self.alice = self.clients.write(directory, "alice", ALICE)
        self.proxy = self.clients.write(directory, "proxy", name((CN, "proxy")))
        self.old = self.clients.write(directory, "old", ALICE, days=-1)
        self.strange = self.clients.write(directory, "strange", name((CN, "strange")))
        self.mallory = Authority("mallory").write(directory, "mallory", ALICE)

    def tls(self, mode: str) -> dict[str, Any]:
        certificate, key = self.server
        return {
            "certificate_file": certificate,
            "key_file": key,
            "client_certificates": mode,
            **({} if mode == "none" else {"client_ca_file": self.client_ca}),
        }

    def context(self, pair: tuple[str, str] | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.trusted)
        if pair is not None:
            context.load_cert_chain(*pair)
        return context


class World:
    """A service with TLS."""

    def __init__(self, service: Service, files: Files) -> None:
        self.service = service
        self.files = files
        self.url = f"https://127.0.0.1:{service.port}"

    def get(self, pair: tuple[str, str] | None = None, path: str = "/v1/whoami", **headers: str) -> httpx.Response:
        with httpx.Client(verify=self.files.context(pair), trust_env=False, timeout=30) as client:
            return client.get(self.url + path, headers={key.replace("_", "-"): value for key, value in headers.items()})

    def subject(self) -> str:
        """Return the name in the server's certificate."""
        with (
            httpx.Client(verify=self.files.context(), trust_env=False, timeout=30) as client,
            client.stream("GET", self.url + "/livez") as answer,
        ):
            connection = answer.extensions["network_stream"].get_extra_info("ssl_object")
            found: str = connection.getpeercert()["subject"][0][0][1]
            return found

    def warned(self) -> list[Any]:
        found: list[Any] = self.get(path="/readyz").json()["warnings"]
        return [text for text in found if "has changed and can't be used" in str(text)]


@pytest.fixture
def world(zookeeper: ZooKeeper, postgres: Postgres, tmp_path: Path) -> Iterator[World]:
    """A service that asks for certificates, and believes those that proxies on loopback's second address pass."""
    files = Files(tmp_path)
    http = {
        "TLS": json.dumps(files.tls("optional")),
        "SSL_PRINCIPAL_MAPPING_RULES": RULES,
        "CLIENT_CERTIFICATE_HEADER": "Client-Cert",
        "CERTIFICATE_PROXIES": '["127.0.0.2"]',
    }
    service = ServiceInThread(
        tmp_path / "service",
        connect=servers.make_chroot(zookeeper.hosts),
        dsn=servers.make_migrated(postgres).service_dsn,
        settings={f"CONFPLANE_HTTP__{key}": value for key, value in http.items()},
    )
    made = World(service, files)
    service.start(wait_ready=False)
    try:
        wait_for(lambda: _ready(made), why=service.tail)
        yield made
    finally:
        service.stop()


def who(answer: httpx.Response) -> tuple[str, str]:
    """Return the principal and the kind of its credential."""
    assert answer.status_code == 200, answer.text
    return answer.json()["principal"], answer.json()["authenticatedBy"]


def _ready(world: World) -> bool:
    assert world.service.running, world.service.tail()
    try:
        return world.get(path="/readyz").status_code == 200
    except httpx.TransportError:
        return False


def test_a_client_certificate_is_kafkas_user(world: World) -> None:
    assert who(world.get(world.files.alice)) == ("User:alice", "certificate")
    assert world.get().status_code == 401
    assert world.get(world.files.strange).status_code == 401
    # A bearer token decides alone.
    assert who(world.get(world.files.alice, Authorization=f"Bearer {world.service.token}"))[0] == "User:admin"
    assert world.get(world.files.alice, Authorization="Bearer wrong").status_code == 401
    # Nobody else's certificates get as far as a request, and a header of anybody is none.
    for pair in (world.files.mallory, world.files.old):
        with pytest.raises(httpx.TransportError):
            world.get(pair)
    der = ssl.PEM_cert_to_DER_cert(Path(world.files.alice[0]).read_text())
    assert world.get(Client_Cert=f":{b64encode(der).decode()}:").status_code == 401
    # An answer before a request is whole ends such a connection too.
    assert world.get(X_Large="x" * 70_000).status_code == 431


def test_a_refusal_reaches_a_client_that_sends_all_of_its_body_before_it_reads(world: World) -> None:
    connection = http.client.HTTPSConnection(
        "127.0.0.1", world.service.port, timeout=120, context=world.files.context()
    )
    with closing(connection):
        connection.request("POST", "/v1/clusters/default/client-quotas:alter", b"x" * (32 * 1024 * 1024))
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Connection"]) == (401, "close")
        assert json.loads(answer.read())["status"] == 401


def test_files_are_read_again_when_they_change(world: World) -> None:
    assert world.subject() == "first"
    files = world.files
    good = [Path(path).read_bytes() for path in files.server]
    Path(files.server[0]).write_bytes(b"no certificate")
    wait_for(world.warned)
    assert world.subject() == "first"
    Path(files.server[0]).write_bytes(good[0])
    wait_for(lambda: not world.warned())
    files.authority.write(files.directory, "server", name((CN, "second")))
    wait_for(lambda: world.subject() == "second")
    # Another authority of clients: certificates of the earlier one are refused from now on.
    other = Authority("others")
    assert world.get(files.alice).status_code == 200
    pair = other.write(files.directory, "bob", name((C, "DE"), (O, "Acme"), (CN, "bob")))
    other.write_own(Path(files.client_ca))
    wait_for(lambda: _refused(world, files.alice))
    assert world.get(pair).json()["principal"] == "User:bob"


def _refused(world: World, pair: tuple[str, str]) -> bool:
    try:
        world.get(pair)
    except httpx.TransportError:
        return True
    return False


def test_the_admin_token_is_read_again_when_it_changes(world: World) -> None:
    [path] = world.service.log.parent.glob("token-*")
    old = f"Bearer {world.service.token}"
    assert world.get(Authorization=old).status_code == 200
    path.write_text("short")
    wait_for(world.warned)
    assert world.get(Authorization=old).status_code == 200
    path.write_text("another token of good length")
    wait_for(lambda: world.get(Authorization=old).status_code == 401)
    assert world.get(Authorization="Bearer another token of good length").status_code == 200
    assert "another token" not in world.service.log.read_text()


def test_a_proxy_passes_its_clients_certificates(world: World) -> None:
    der = ssl.PEM_cert_to_DER_cert(Path(world.files.alice[0]).read_text())
    pem = urllib.parse.quote(Path(world.files.alice[0]).read_text(), safe="")
    transport = httpx.HTTPTransport(verify=world.files.context(world.files.proxy), local_address="127.0.0.2")
    with httpx.Client(transport=transport, timeout=30) as client:

        def get(*values: str) -> httpx.Response:
            return client.get(world.url + "/v1/whoami", headers=[("Client-Cert", value) for value in values])

        for value in (f":{b64encode(der).decode()}:", b64encode(der).decode(), pem):
            assert who(get(value)) == ("User:alice", "certificate")
        # Without the header it is no client's: not the proxy's own either.
        assert get().status_code == 401
        assert get("").status_code == 401
        assert get(pem, pem).status_code == 401
    plain = httpx.HTTPTransport(verify=world.files.context(), local_address="127.0.0.2")
    with httpx.Client(transport=plain, timeout=30) as client:
        assert client.get(world.url + "/v1/whoami", headers={"Client-Cert": pem}).json()["principal"] == "User:alice"
