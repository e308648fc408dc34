"""A sign-in at an issuer that leads on to a third origin, in a browser that applies the policy of the console."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.tab import Tab
from tests.console.sign_in_issuer import SignInIssuer
from tests.support.ports import reserved_port
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.support.service import Service


@pytest.fixture(scope="module")
def issuer() -> Iterator[SignInIssuer]:
    with SignInIssuer() as made:
        yield made


@pytest.fixture(scope="module")
def service_options(issuer: SignInIssuer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The module's service, whose console has a client at the issuer."""
    port = reserved_port()
    return {"settings": issuer.settings_of_console(tmp_path_factory.mktemp("console"), port), "port": port}


def test_a_person_signs_in_by_keyboard_at_a_third_origin(
    browser: Browser, service: Service, issuer: SignInIssuer
) -> None:
    with Tab(browser, service) as tab:

        def is_reached() -> bool:
            tab.page.goto("/console/design")
            return tab.page.get_by_text("has not reached this issuer").count() == 0

        wait_for(is_reached, why=service.tail)
        tab.check()
        tab.press("button", "Sign in at")
        tab.page.wait_for_selector("nav.side")
        assert tab.page.url == f"{service.url}/console/design"
    assert any(path.startswith("/login") for path in issuer.page.requests)
    others = (f"a request to {issuer.url}/authorize", f"a request to {issuer.page.url}/login")
    assert [fault for fault in tab.faults if not fault.startswith(others)] == []
