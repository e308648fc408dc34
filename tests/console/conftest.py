"""A service with the console, and a visitor of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.console.api import Api
from tests.console.visitor import Visitor, console_key
from tests.support.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Database


@pytest.fixture(scope="session")
def console_settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a service with a console; its replicas have the same."""
    return console_key(tmp_path_factory.mktemp("console"))


@pytest.fixture(scope="module")
def service_options(console_settings: dict[str, str]) -> dict[str, Any]:
    """The module's service has a console."""
    return {"settings": console_settings}


@pytest.fixture
def visitor(service: Service) -> Iterator[Visitor]:
    """A browser that is signed in with the admin token."""
    with Visitor(service) as opened:
        yield opened.signed_in()


@pytest.fixture
def api(service: Service) -> Iterator[Api]:
    """The API with the admin token."""
    with Api(service) as opened:
        yield opened


@pytest.fixture
def stranger(service: Service) -> Iterator[Visitor]:
    """A browser that is not signed in."""
    with Visitor(service) as opened:
        yield opened


@pytest.fixture(scope="module")
def pair_of_consoles(
    service: Service,
    console_settings: dict[str, str],
    module_chroot: str,
    module_database: Database,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Service, Service]]:
    """Two replicas with one key."""
    directory = tmp_path_factory.mktemp("replica")
    options: dict[str, Any] = {"connect": module_chroot, "dsn": module_database.service_dsn}
    with Service(directory, settings=console_settings, **options) as other:
        yield service, other
