from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from pydantic import ValidationError

from confplane.identity_settings import TlsSettings
from confplane.listener.tls import ListenerTls
from confplane.services.watched_files import FileWatch, WatchedFiles
from confplane.settings import HttpSettings, UnusableSettingsError
from tests.support.alerts import PartAlerts
from tests.support.certificates import CN, Authority, name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

AUTHORITY = Authority()


def settings(directory: Path, **more: Any) -> TlsSettings:
    certificate, key = AUTHORITY.write(directory, "server", name((CN, "server")))
    return TlsSettings.model_validate({"certificate_file": certificate, "key_file": key, **more})


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None) -> ssl.SSLObject:
    """Return the client's side of a connection within memory."""
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        server.wrap_bio(one, other, server_side=True),
        client.wrap_bio(other, one, server_hostname="localhost", session=session),
    )
    for _ in range(4):
        for side in sides[::-1]:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return sides[1]


def client(directory: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=AUTHORITY.write_own(directory / "ca.pem"))


@pytest.mark.parametrize(("lowest", "works"), [("1.2", True), ("1.3", False)])
def test_the_lowest_version_is_respected(tmp_path: Path, lowest: str, works: bool) -> None:  # noqa: FBT001 - a table
    server, older = ListenerTls(settings(tmp_path, min_version=lowest)), client(tmp_path)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    if works:
        assert handshake(server.context, older).version() == "TLSv1.2"
    else:
        with pytest.raises(ssl.SSLError):
            handshake(server.context, older)


def test_no_session_carries_a_client_past_a_replaced_authority(tmp_path: Path) -> None:
    clients = Authority("clients")
    ca = clients.write_own(tmp_path / "clients.pem")
    with pytest.raises(ValidationError, match="resumed session"):
        settings(tmp_path, client_certificates="optional", client_ca_file=ca, min_version="1.2")
    server = ListenerTls(settings(tmp_path, client_certificates="required", client_ca_file=ca))
    alice = client(tmp_path)
    alice.load_cert_chain(*clients.write(tmp_path, "alice", name((CN, "alice"))))
    first = handshake(server.context, alice)
    assert first.version() == "TLSv1.3"
    with pytest.raises(ssl.SSLWantReadError):
        first.read()  # a ticket would be read here
    assert first.session is None or not first.session.has_ticket
    Authority("others").write_own(tmp_path / "clients.pem")
    server.reload()
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        handshake(server.context, alice, first.session)
    older = client(tmp_path)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        handshake(server.context, older)


def _encrypted(directory: Path) -> None:
    _, key = AUTHORITY.issue(name((CN, "server")))
    secret = BestAvailableEncryption(b"secret")
    (directory / "server.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))


def _another(directory: Path) -> None:
    AUTHORITY.write(directory, "other", name((CN, "other")))
    (directory / "other.key").replace(directory / "server.key")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda directory: (directory / "server.pem").unlink(),
        lambda directory: (directory / "server.pem").write_text(""),
        lambda directory: (directory / "server.key").write_text("-----BEGIN"),
        _encrypted,
        _another,
    ],
)
def test_files_that_do_not_fit_are_refused_and_leave_the_earlier(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    given = settings(tmp_path)
    server = ListenerTls(given)
    files = WatchedFiles("certificate", given.files, server.reload)
    alerts = PartAlerts(FileWatch([files]))
    assert alerts.scrape() == set()
    spoil(tmp_path)
    with pytest.raises(UnusableSettingsError, match=r"http\.tls"):
        ListenerTls(given)
    files.check()
    assert files.fault is not None
    assert alerts.scrape() == {"FileUnusable"}
    assert handshake(server.context, client(tmp_path)).getpeercert()
    settings(tmp_path)
    files.check()
    assert files.fault is None


def test_files_that_did_not_change_are_not_read(tmp_path: Path) -> None:
    path, reads = tmp_path / "file", list[bytes]()
    path.write_bytes(b"one")
    files = WatchedFiles("file", [path], lambda: reads.append(path.read_bytes()))
    files.check()
    assert reads == []
    (tmp_path / "new").write_bytes(b"two")
    (tmp_path / "new").replace(path)
    files.check()
    files.check()
    assert reads == [b"two"]
    path.unlink()
    files.check()
    assert files.fault == "No such file or directory"
    path.write_bytes(b"three")
    files.check()
    assert reads == [b"two", b"three"]


def test_settings_that_go_together_are_together(tmp_path: Path) -> None:
    for more in ({"client_certificates": "optional"}, {"client_ca_file": "/x"}):
        with pytest.raises(ValidationError, match="go together"):
            settings(tmp_path, **more)
    for http in ({"client_certificate_header": "Client-Cert"}, {"certificate_proxies": ["10.0.0.1"]}):
        with pytest.raises(ValidationError, match="go together"):
            HttpSettings.model_validate(http)
    with pytest.raises(ValidationError, match="not the address"):
        HttpSettings.model_validate({"client_certificate_header": "a", "certificate_proxies": ["0.0.0.0/0"]})
