"""A Chromium, and a tab that is signed in at the console of the module's service."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.tab import Tab
from tests.console.test_webhook_pages import webhook_settings
from tests.console.visitor import console_key
from tests.support import tools

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.support.service import Service


@pytest.fixture(scope="module")
def service_options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The module's service has a console, and webhooks."""
    directory = tmp_path_factory.mktemp("console")
    return {"settings": console_key(directory) | webhook_settings(directory)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a module: until it is closed, Playwright runs an event loop, which async tests refuse."""
    chromium = tools.obtain(tools.chromium)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # as root the sandbox does not start
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield opened
        opened.close()


@pytest.fixture
def tab(browser: Browser, service: Service) -> Iterator[Tab]:
    """A tab that is signed in, and does nothing that it must not do."""
    with Tab(browser, service) as opened:
        opened.sign_in()
        yield opened
    assert opened.faults == []
