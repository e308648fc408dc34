"""URLs that callers supply, and the addresses that requests to them may go to. Pure functions.

A name is checked twice: its form when the URL is accepted, and its addresses before each connection
(``confplane.security.outbound``). Errors never hold the URL: its path, query and user info are secrets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST: Final = 2_048
_URL: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://"
    r"(?:(?P<user>[^@/?#\\]*)@)?"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]@:/?#\\%]+)"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>[/?][^#\\]*)?"
)
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A last label that systems read as a number makes the host an address: 127.1, 0x7f.1, 2130706433."""
_LONGEST_NAME: Final = 253
_LARGEST_PORT: Final = 65_535
_PORTS: Final = {"https": 443, "http": 80}
_LOCAL: Final = "localhost"

_NOT_PUBLIC: Final = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "168.63.129.16/32",  # the host of a virtual machine of Azure: a public address that is routed to it
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",
            "2001::/23",
            "2001:db8::/32",
            "3fff::/20",
        ),
    )
)
"""Networks that are not public (IANA's registries of special-purpose addresses), besides IPv6 outside 2000::/3."""
_GLOBAL_UNICAST: Final = ip_network("2000::/3")
_NAT64: Final = ip_network("64:ff9b::/96")
_6TO4: Final = ip_network("2002::/16")
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""The upper half of an interface id whose lower half is an IPv4 address (RFC 5214)."""
_LOW_32: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class OutboundUrl:
    """A URL in its parts. Its representation has no secrets."""

    secure: bool
    host: str
    """A name or an address in lower case, without brackets."""
    port: int
    target: str = field(repr=False)
    """The path with the query."""
    user_info: str | None = field(repr=False)

    @property
    def authority(self) -> str:
        """The host as in the header Host: in brackets where needed, and with the port if it is not the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self._scheme] else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """The URL without its secrets, such as ``https://hooks.example.com/...``."""
        return f"{self._scheme}://{self.authority}/..."

    @property
    def _scheme(self) -> str:
        return "https" if self.secure else "http"


@dataclass(frozen=True, slots=True)
class UrlGuard:
    """The rules for URLs of callers.

    Attributes:
        allowed_hosts: If there are any: only these hosts, at any address. ``*.example.com`` is every name below.
        insecure_http: Allow http to a loopback address.
    """

    allowed_hosts: frozenset[str] = frozenset()
    insecure_http: bool = False

    def parse(self, text: str, pointer: str) -> OutboundUrl:
        """Return an accepted URL in its parts.

        Raises:
            InvalidRequestError: The URL is not accepted; the text names the rule, and nothing of the URL but its host.
        """
        found = _URL.fullmatch(text)
        if found is None or len(text) > LONGEST or not all("!" <= letter <= "~" for letter in text):
            raise InvalidRequestError(
                f"The URL is not of the form https://host/path, in ASCII, of {LONGEST} characters at most, without a"
                " fragment. Encode other characters with %, and names with Punycode",
                pointer=pointer,
            )
        scheme, user_info, host = found["scheme"].lower(), found["user"], _host(found["host"].lower(), pointer)
        if scheme not in _PORTS:
            raise InvalidRequestError("The URL is not an https URL", pointer=pointer)
        port = int(found["port"] or _PORTS[scheme])
        if not 0 < port <= _LARGEST_PORT:
            raise InvalidRequestError(f"The port of the URL is not between 1 and {_LARGEST_PORT}", pointer=pointer)
        if scheme == "http" and not (self.insecure_http and _is_local(host)):
            raise InvalidRequestError(
                "The URL is not an https URL. http is possible for a loopback address alone, with the setting"
                " webhooks.insecure_http",
                pointer=pointer,
            )
        target = found["target"] or "/"
        url = OutboundUrl(
            scheme == "https", host, port, target if target.startswith("/") else f"/{target}", user_info or None
        )
        self._check_host(url, pointer)
        return url

    def permits(self, url: OutboundUrl, address: str) -> bool:
        """Return True if a request to a URL may connect to an address of its host."""
        try:
            found = ip_address(address)
        except ValueError:
            return False
        if not url.secure and not (self.insecure_http and found.is_loopback):
            return False
        if self.allowed_hosts:
            return self._is_allowed(url.host) and not (found.is_unspecified or found.is_multicast)
        return is_public(found) or not url.secure

    def _check_host(self, url: OutboundUrl, pointer: str) -> None:
        if self.allowed_hosts and not self._is_allowed(url.host):
            raise InvalidRequestError(
                f"The host {url.host} is not in the setting webhooks.allowed_hosts. Ask an administrator to add it",
                pointer=pointer,
            )
        literal = "127.0.0.1" if _is_local_name(url.host) else url.host
        if _as_address(literal) is not None and not self.permits(url, literal):
            raise InvalidRequestError(
                f"The host {url.host} is not a public address. Use a public one, or ask an administrator to add it to"
                " the setting webhooks.allowed_hosts",
                pointer=pointer,
            )

    def _is_allowed(self, host: str) -> bool:
        return host in self.allowed_hosts or any(
            f"*.{host[place + 1 :]}" in self.allowed_hosts for place, letter in enumerate(host) if letter == "."
        )


def check_allowed_host(host: str) -> str:
    """Return an entry of the setting of allowed hosts in the form of :class:`OutboundUrl`.

    Raises:
        ValueError: It is not a host, or not ``*.`` with a name.
    """
    wild, name = host.startswith("*."), host.removeprefix("*.").lower()
    bracketed = f"[{name}]" if ":" in name else name
    try:
        found = _host(bracketed, "")
    except InvalidRequestError:
        found = ""
    if not found or (wild and _as_address(found) is not None):
        raise ValueError(f"{host!a} is not a host name, an address, or *. with a name")
    return f"*.{found}" if wild else found


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return True for an address of the public internet; IPv4 addresses within IPv6 ones decide for these."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC)
    if address.scope_id is not None:
        return False
    if address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & _LOW_32))
    if address not in _GLOBAL_UNICAST or any(address in network for network in _NOT_PUBLIC):
        return False
    return all(map(is_public, _embedded(address)))


def _embedded(address: IPv6Address) -> Iterable[IPv4Address]:
    """Return the IPv4 addresses to which a router or a tunnel may send packets of a global unicast address."""
    number = int(address)
    if address in _6TO4:
        yield IPv4Address(number >> 80 & _LOW_32)
    if number >> 32 & _LOW_32 in _ISATAP:
        yield IPv4Address(number & _LOW_32)


def _host(text: str, pointer: str) -> str:
    """Return a host without brackets; an address in its canonical form.

    Raises:
        InvalidRequestError: It is not a name or an address, or is an address in an unusual form.
    """
    address = _as_address(text[1:-1] if text.startswith("[") else text)
    if address is not None and text.startswith("[") == isinstance(address, IPv6Address):
        return str(address)
    labels = text.split(".")
    if len(text) > _LONGEST_NAME or not all(map(_LABEL.fullmatch, labels)) or _NUMBER.fullmatch(labels[-1]) is not None:
        raise InvalidRequestError(
            "The host of the URL is not a name such as hooks.example.com, and not an address in its usual form",
            pointer=pointer,
        )
    return text


def _as_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _is_local_name(host: str) -> bool:
    return host == _LOCAL or host.endswith(f".{_LOCAL}")


def _is_local(host: str) -> bool:
    address = _as_address(host)
    return _is_local_name(host) if address is None else address.is_loopback
