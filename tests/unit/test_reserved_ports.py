"""Ports of servers that tests start: nobody else gets them."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from tests.support.ports import reserved_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ports are reserved on Linux alone")


class Owner:
    """Anything with a port."""


def listening(port: int) -> socket.socket:
    """A server as uvicorn, Java, Node and Postgres make it."""
    return socket.create_server(("127.0.0.1", port))


def test_the_owner_of_a_port_listens_on_it_again_and_again() -> None:
    owner = Owner()
    port = reserved_port(owner)
    for _ in range(2):
        # No other process gets it before its server is started, and while that is stopped.
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with listening(port), socket.create_connection(("127.0.0.1", port)):
            pass


def test_a_port_is_free_once_its_owner_is_gone() -> None:
    owner = Owner()
    port = reserved_port(owner)
    del owner
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


def test_the_ports_of_several_owners_differ() -> None:
    owners = [Owner() for _ in range(50)]
    assert len({reserved_port(each) for each in owners}) == 50


def test_no_test_has_a_server_on_a_port_that_is_merely_free() -> None:
    tests = Path(__file__).parents[1]
    users = {str(path.relative_to(tests)) for path in tests.rglob("*.py") if "free_port(" in path.read_text()}
    assert users <= {"devstack/test_stack.py", "unit/test_reserved_ports.py"}
