"""Clients behind trusted proxies: the first address from the end of X-Forwarded-For that is no proxy's."""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from confplane.listener.forwarded import ForwardedForMiddleware
from confplane.settings import HttpSettings

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

TRUSTED = ("10.0.0.0/24", "192.168.1.1", "fd00::/8")


async def client_of(peer: str, *values: bytes) -> str:
    """Send a request through and return the client that the application sees."""
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        seen.append(scope["client"][0])

    async def never() -> None:
        raise AssertionError

    headers = [(b"x-other", b"9.9.9.9"), *((b"x-forwarded-for", value) for value in values)]
    scope = {"type": "http", "client": (peer, 4711), "headers": headers}
    await ForwardedForMiddleware(app, [ip_network(each) for each in TRUSTED])(scope, never, never)  # type: ignore[arg-type]
    return seen[0]


@pytest.mark.parametrize(
    ("peer", "values", "client"),
    [
        ("10.0.0.7", [b"1.2.3.4"], "1.2.3.4"),
        ("10.0.0.7", [b"6.6.6.6, 1.2.3.4"], "1.2.3.4"),
        ("10.0.0.7", [b"6.6.6.6", b"1.2.3.4"], "1.2.3.4"),
        ("10.0.0.7", [b"6.6.6.6, 1.2.3.4, 10.0.0.8,192.168.1.1"], "1.2.3.4"),
        ("10.0.0.7", [b"10.0.0.9, 10.0.0.8"], "10.0.0.9"),
        ("10.0.0.7", [b"1.2.3.4:55555"], "1.2.3.4"),
        ("10.0.0.7", [b"[2001:db8::1]:55555"], "2001:db8::1"),
        ("10.0.0.7", [b"2001:DB8:0::1"], "2001:db8::1"),
        ("fd00::1", [b"2001:db8::1"], "2001:db8::1"),
        ("::ffff:10.0.0.7", [b"::ffff:1.2.3.4"], "1.2.3.4"),
        ("10.0.0.7", [b"fe80::1%any text of a client"], "fe80::1"),
        ("10.0.0.7", [], "10.0.0.7"),
        ("10.0.0.7", [b""], "10.0.0.7"),
        ("10.0.0.7", [b"somebody"], "10.0.0.7"),
        ("10.0.0.7", [b"1.2.3.4, unknown, 10.0.0.8"], "10.0.0.8"),
        ("10.0.0.7", [b"1.2.3.4, \xff"], "10.0.0.7"),
        ("10.0.1.7", [b"1.2.3.4"], "10.0.1.7"),
        ("127.0.0.1", [b"1.2.3.4"], "127.0.0.1"),
    ],
)
async def test_the_client_is_the_last_address_that_is_no_proxys(peer: str, values: list[bytes], client: str) -> None:
    assert await client_of(peer, *values) == client


@pytest.mark.parametrize("value", ["*", "proxy.example.com", "10.0.0.1/8", "0.0.0.0/0", "::/0", "", "unix:"])
def test_proxies_are_named_by_addresses_alone(value: str) -> None:
    with pytest.raises(ValidationError, match="is not the address or network of a proxy"):
        HttpSettings.model_validate({"trusted_proxies": [value]})
