"""Requests to URLs of callers: no private address in any spelling, one resolution, no redirects and no proxies."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.errors import InvalidRequestError
from confplane.domain.outbound_urls import UrlGuard, check_allowed_host
from confplane.security.outbound import MOST_BYTES, GuardedSender
from confplane.services.ports.webhooks import OutboundError
from tests.support.certificates import CN, Authority, name
from tests.support.receiver import OK, receiving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

PRIVATE_HOSTS = (
    *("127.0.0.1", "127.1", "127.0.1", "127.0.0.1.", "127.255.255.254", "0177.0.0.1", "0x7f.0.0.1", "0x7f.1"),
    *(
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0",
        "0.0.0.0",  # noqa: S104 - an address that is refused
        "0x0",
        "127.0.0.01",
        "\uff11\uff12\uff17.0.0.1",
        "\u2460\u2461\u2466.0.0.1",
    ),
    *("localhost", "LOCALHOST", "localhost.", "hooks.localhost", "127.0.0.1%2f", "127.0.0.1%00.example.com"),
    *("10.0.0.1", "10.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("100.100.100.200", "192.0.0.192", "198.18.0.1", "203.0.113.7", "224.0.0.1", "255.255.255.255", "168.63.129.16"),
    *(
        "[::]",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[::ffff:0:7f00:1]",
    ),
    *("[64:ff9b::7f00:1]", "[64:ff9b::10.0.0.1]", "[64:ff9b:1::a00:1]", "[2002:7f00:1::]", "[2002:a00:1::1]"),
    *(
        "[2001:0:7f00:1::1]",
        "[fe80::1]",
        "[fe80::1%25eth0]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[ff02::1]",
        "[2001:db8::1]",
    ),
    *("[2606:4700::5efe:a00:1]", "[2606:4700::200:5efe:7f00:1]", "[100::1]", "[fec0::1]", "[::ffff:169.254.169.254]"),
)
PRIVATE_ADDRESSES = (
    *("127.0.0.1", "10.0.0.1", "172.20.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::", "::1"),  # noqa: S104 - as above
    *("::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "fe80::1", "fe80::1%2", "fd00::1", "ff02::1", "3fff::1"),
)
PUBLIC_ADDRESSES = ("8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::1", "::ffff:8.8.8.8", "172.32.0.1")


class Connects:
    """Records the addresses of connections, and makes none."""

    def __init__(self) -> None:
        self.addresses: list[tuple[str, int]] = []
        self.tls: list[Any] = []

    async def __call__(self, address: str, port: int, **more: Any) -> Any:
        self.addresses.append((address, port))
        self.tls.append(more.get("server_hostname"))
        raise ConnectionRefusedError


def resolving(*answers: Sequence[str]) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    """Return a resolver with an answer for each call."""
    left = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        del host, port
        return left.pop(0)

    return resolve


async def post(sender: GuardedSender, url: str, guard: UrlGuard) -> int:
    return await sender.post(guard.parse(url, "/url"), {"Content-Type": "application/json"}, b"{}")


@pytest.fixture
def tls() -> ssl.SSLContext:
    return ssl.create_default_context()


@pytest.mark.parametrize("host", PRIVATE_HOSTS)
async def test_no_spelling_of_a_private_address_is_connected_to(host: str, tls: ssl.SSLContext) -> None:
    assert len(PRIVATE_HOSTS) >= 40
    guard, connects = UrlGuard(), Connects()
    with pytest.raises((InvalidRequestError, OutboundError)):
        await post(GuardedSender(guard, tls, connect=connects), f"https://{host}/x", guard)
    assert connects.addresses == []


@pytest.mark.parametrize("address", PRIVATE_ADDRESSES)
async def test_no_name_with_a_private_address_is_connected_to(address: str, tls: ssl.SSLContext) -> None:
    guard, connects = UrlGuard(), Connects()
    for answer in ([address], ["8.8.8.8", address]):
        sender = GuardedSender(guard, tls, resolve=resolving(answer), connect=connects)
        with pytest.raises(OutboundError, match="not allowed"):
            await post(sender, "https://hooks.example.com/x", guard)
    assert connects.addresses == []


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
async def test_public_addresses_are_connected_to(address: str, tls: ssl.SSLContext) -> None:
    guard, connects = UrlGuard(), Connects()
    sender = GuardedSender(guard, tls, resolve=resolving([address]), connect=connects)
    with pytest.raises(OutboundError, match="no connection"):
        await post(sender, "https://hooks.example.com:8443/x", guard)
    assert connects.addresses == [(address, 8443)]
    assert connects.tls == ["hooks.example.com"]


async def test_a_name_is_resolved_once_and_another_answer_is_never_used(tls: ssl.SSLContext) -> None:
    guard, connects = UrlGuard(), Connects()
    resolve = resolving(["8.8.8.8", "9.9.9.9"], ["127.0.0.1"])
    sender = GuardedSender(guard, tls, resolve=resolve, connect=connects)
    with pytest.raises(OutboundError, match="no connection"):
        await post(sender, "https://hooks.example.com/", guard)
    assert connects.addresses == [("8.8.8.8", 443), ("9.9.9.9", 443)]
    with pytest.raises(OutboundError, match="not allowed"):
        await post(sender, "https://hooks.example.com/", guard)
    assert len(connects.addresses) == 2


async def test_an_unknown_name_is_reported(tls: ssl.SSLContext) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        del host, port
        raise socket.gaierror

    guard = UrlGuard()
    with pytest.raises(OutboundError, match="not known"):
        await post(GuardedSender(guard, tls, resolve=resolve), "https://hooks.example.com/", guard)


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://hooks.example.com/", "not an https URL"),
        ("ftp://hooks.example.com/", "not an https URL"),
        ("file:///etc/passwd", "not of the form"),
        ("https://", "not of the form"),
        ("hooks.example.com/x", "not of the form"),
        ("https://hooks.example.com/#part", "not of the form"),
        ("https://hooks.example.com/a b", "not of the form"),
        ("https://hooks.example.com/\r\nX: y", "not of the form"),
        ("https://hooks.example.com\\@10.0.0.1/", "not of the form"),
        ("https://hooks.example.com:99999/", "port"),
        ("https://hooks.example.com:0/", "port"),
        ("https://höoks.example.com/", "not of the form"),
        ("https://-a.example.com/", "host"),
        ("https://a..example.com/", "host"),
        (f"https://hooks.example.com/{'a' * 2048}", "not of the form"),
    ],
)
def test_urls_of_another_form_are_refused_by_a_rule(url: str, rule: str) -> None:
    with pytest.raises(InvalidRequestError, match=rule) as caught:
        UrlGuard().parse(url, "/url")
    assert caught.value.pointer == "/url"


def test_a_url_is_shown_without_its_secrets() -> None:
    url = UrlGuard().parse(
        "https://planted-user:planted-word@Hooks.Example.com:8443/planted-path?planted=query", "/url"
    )
    assert url.shown == "https://hooks.example.com:8443/..."
    assert "planted" not in repr(url)


@pytest.mark.parametrize(
    "url", ["http://planted/planted", "https://planted.example.com/planted", "https://10.0.0.1/planted"]
)
def test_refusals_hold_nothing_but_the_host(url: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        UrlGuard(frozenset({"other.example.com"})).parse(url, "/url")
    assert "/planted" not in caught.value.detail


def test_listed_hosts_are_the_only_ones() -> None:
    guard = UrlGuard(frozenset(map(check_allowed_host, ("hooks.internal", "*.Example.com", "10.0.0.7", "fd00::1"))))
    for host, address in (("hooks.internal", "10.1.2.3"), ("a.b.example.com", "8.8.8.8"), ("10.0.0.7", "10.0.0.7")):
        assert guard.permits(guard.parse(f"https://{host}/", "/url"), address)
    assert guard.parse("https://[fd00::1]/", "/url").authority == "[fd00::1]"
    for host in ("example.com", "hooks.internal.example.org", "10.0.0.8", "8.8.8.8", "badexample.com"):
        with pytest.raises(InvalidRequestError, match=r"webhooks\.allowed_hosts"):
            guard.parse(f"https://{host}/", "/url")


@pytest.mark.parametrize("host", ["", "*", "*.10.0.0.1", "https://a", "a/b", "127.1", "a b", "*.*.example.com"])
def test_impossible_hosts_of_the_setting_are_refused(host: str) -> None:
    with pytest.raises(ValueError, match="is not a host name"):
        check_allowed_host(host)


def test_http_is_for_loopback_in_development_alone() -> None:
    guard = UrlGuard(insecure_http=True)
    assert guard.permits(guard.parse("http://localhost:8080/", "/url"), "127.0.0.1")
    assert not guard.permits(guard.parse("http://localhost:8080/", "/url"), "10.0.0.1")
    for url in ("http://10.0.0.1/", "http://hooks.example.com/", "https://127.0.0.1/"):
        with pytest.raises(InvalidRequestError):
            guard.parse(url, "/url")


# -- against a receiver


@pytest.fixture
def local() -> UrlGuard:
    return UrlGuard(insecure_http=True)


async def test_a_request_has_its_target_headers_and_credentials(local: UrlGuard, tls: ssl.SSLContext) -> None:
    async with receiving() as receiver:
        url = receiver.url("/a%20b?c=d").replace("http://", "http://us%40er:pa%3Ass@")
        assert await post(GuardedSender(local, tls), url, local) == 204
        [request] = receiver.requests
    assert (request.target, request.body) == ("/a%20b?c=d", b"{}")
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert request.headers["authorization"] == "Basic dXNAZXI6cGE6c3M="
    assert request.headers["content-type"] == "application/json"


async def test_redirects_are_not_followed(local: UrlGuard, tls: ssl.SSLContext) -> None:
    async with receiving() as receiver, receiving() as other:
        location = other.url("/stolen").encode()
        receiver.respond = lambda _: b"HTTP/1.1 307 Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % location
        assert await post(GuardedSender(local, tls), receiver.url(), local) == 307
        assert (receiver.connections, other.connections) == (1, 0)


async def test_proxies_of_the_environment_are_not_used(
    local: UrlGuard, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiving() as receiver, receiving() as proxy:
        for variable in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(variable, proxy.url())
        assert await post(GuardedSender(local, tls), receiver.url(), local) == 204
        assert (receiver.connections, proxy.connections) == (1, 0)


@pytest.mark.parametrize(
    ("response", "status"),
    [
        (OK, 204),
        (b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", 200),
        (b"HTTP/1.0 500 \r\n\r\n" + b"x" * 100_000, 500),
        (b"HTTP/1.1 429\r\n\r\n", 429),
    ],
)
async def test_the_status_of_a_response_is_returned(
    local: UrlGuard, tls: ssl.SSLContext, response: bytes, status: int
) -> None:
    async with receiving() as receiver:
        receiver.respond = lambda _: response
        assert await post(GuardedSender(local, tls), receiver.url(), local) == status


@pytest.mark.parametrize(
    "response",
    [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 103 Hints\r\n\r\n", b"HTTP/1.1 100 C\r\n" + b"a: b\r\n" * 2 * MOST_BYTES],
)
async def test_a_response_without_a_status_is_an_error(local: UrlGuard, tls: ssl.SSLContext, response: bytes) -> None:
    async with receiving() as receiver:
        receiver.respond = lambda _: response
        with pytest.raises(OutboundError, match=r"not HTTP|no connection"):
            await post(GuardedSender(local, tls), receiver.url(), local)


async def test_a_receiver_that_hangs_is_left(local: UrlGuard, tls: ssl.SSLContext) -> None:
    async with receiving() as receiver:
        receiver.respond = lambda _: None
        with pytest.raises(OutboundError, match="no response within"):
            await post(GuardedSender(local, tls, timeout_s=0.1), receiver.url(), local)


async def test_the_certificate_is_verified_for_the_host(tmp_path: Path) -> None:
    """The connection goes to the verified address, and the certificate is that of the name."""
    authority = Authority()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*authority.write(tmp_path, "server", name((CN, "localhost"))))
    trusted = ssl.create_default_context(cafile=authority.write_own(tmp_path / "authority.pem"))
    guard = UrlGuard(frozenset({"localhost", "hooks.example.com"}))

    async def resolve(host: str, port: int) -> Sequence[str]:
        del host, port
        return ["127.0.0.1"]

    async with receiving(server) as receiver:
        good = receiver.url(scheme="https", host="localhost")
        bad = receiver.url(scheme="https", host="hooks.example.com")
        assert await post(GuardedSender(guard, trusted, resolve=resolve), good, guard) == 204
        with pytest.raises(OutboundError, match="certificate is not valid"):
            await post(GuardedSender(guard, trusted, resolve=resolve), bad, guard)
        with pytest.raises(OutboundError, match="certificate is not valid"):
            await post(GuardedSender(guard, ssl.create_default_context(), resolve=resolve), good, guard)
        assert len(receiver.requests) == 1


async def test_a_cancelled_request_ends_at_once(local: UrlGuard, tls: ssl.SSLContext) -> None:
    async with receiving() as receiver:
        arrived = asyncio.Event()

        def respond(_: object) -> None:
            arrived.set()

        receiver.respond = respond
        task = asyncio.ensure_future(post(GuardedSender(local, tls), receiver.url(), local))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
