"""The console in a real Chromium: by keyboard, in both colours, on a wide and a narrow screen, without a violation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from playwright.sync_api import expect, sync_playwright

from tests.console.visitor import console_key
from tests.support import tools

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.support.service import Service

CLUSTER = "/console/clusters/default"
ENTITIES = f"{CLUSTER}/entities"
PAIR = f"{ENTITIES}/user=payments,client-id=billing"
PATHS = ("/console/", "/console/design", ENTITIES, f"{ENTITIES}?prefix=pay", PAIR, f"{PAIR}/history", f"{PAIR}/clients",
         f"{PAIR}/access", f"{PAIR}/edit/client-quotas?key=consumer_byte_rate", f"{CLUSTER}/audit",
        f"{CLUSTER}/definitions?search=retention", f"{CLUSTER}/access", f"{CLUSTER}/access/who?principal=User:a",
        f"{CLUSTER}/access/tokens", f"{CLUSTER}/access/grants", "/console/none")  # fmt: skip
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}


@pytest.fixture(scope="module")
def service_options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return {"settings": console_key(tmp_path_factory.mktemp("console"))}


@pytest.fixture(scope="module", autouse=True)
def _content(service: Service) -> None:
    """Quotas of a team on two levels, and a long list."""
    headers = {"Authorization": f"Bearer {service.token}"}
    with httpx.Client(base_url=f"{service.url}/v1/clusters/default", headers=headers, trust_env=False) as client:
        for entity, rate in {"user": 3, "user=payments": 10485760, "user=payments,client-id=billing": 1048576}.items():
            body = {"quotas": {"producer_byte_rate": rate, "request_percentage": 200}}
            client.put(f"/client-quotas/{entity}", json=body, params={"reason": "a test"}).raise_for_status()
        for number in range(60):
            body = {"quotas": {"producer_byte_rate": number + 1}}
            client.put(f"/client-quotas/user=team-{number:02d}", json=body).raise_for_status()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = tools.obtain(tools.chromium)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # as root the sandbox does not start
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield opened
        opened.close()


class Tab:
    """A page that is signed in, and what it must not do: violations, errors, and requests to other hosts.

    Args:
        browser: The browser.
        service: The service.
        colours: ``light`` or ``dark``.
        width: Pixels.
    """

    def __init__(self, browser: Browser, service: Service, colours: Any = "light", width: int = 1280) -> None:
        self.service = service
        self.faults: list[str] = []
        self.context = browser.new_context(
            base_url=service.url, color_scheme=colours, viewport={"width": width, "height": 900}
        )
        self.page: Page = self.context.new_page()
        self.page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self._check(request.url))

    def _check(self, url: str) -> None:
        if not url.startswith(self.service.url + "/"):
            self.faults.append(f"a request to {url}")

    def sign_in(self) -> None:
        """Sign in with the keyboard alone: the field has the focus."""
        self.page.goto("/console/")
        self.page.keyboard.type(self.service.token)
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("nav.side")

    def open(self, path: str) -> None:
        """Open a page, with all that it loads afterwards."""
        self.page.goto(path, wait_until="networkidle")


@pytest.fixture
def tab(browser: Browser, service: Service) -> Iterator[Tab]:
    opened = Tab(browser, service)
    opened.sign_in()
    yield opened
    opened.context.close()
    assert opened.faults == []


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_every_page_is_accessible_and_fits(browser: Browser, service: Service, colours: str, width: int) -> None:
    script = tools.obtain(tools.axe).read_text()
    opened = Tab(browser, service, colours, width)
    opened.page.goto("/console/sign-in")
    violations: list[str] = []
    for path in (None, *PATHS):
        if path == PATHS[0]:
            opened.sign_in()
        if path is not None:
            opened.open(path)
        # Evaluated by the debugger, which the policy of the page does not bind.
        opened.page.evaluate(script)
        found = opened.page.evaluate("rules => axe.run(document, rules)", RULES)
        violations += [f"{path} {each['id']}: {each['nodes'][0]['html']}" for each in found["violations"]]
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width, path
    opened.context.close()
    assert violations == []
    assert [fault for fault in opened.faults if "404" not in fault] == [], "the last path is not there"


def test_a_search_by_keyboard_leads_to_why_a_client_is_throttled(tab: Tab) -> None:
    tab.open(ENTITIES)
    tab.page.focus("#prefix")
    tab.page.keyboard.type("payments")
    expect(tab.page.locator("#results tbody tr")).to_have_count(2)
    assert tab.page.url.endswith("prefix=payments&kind=&facet=&key=&value=")
    tab.page.get_by_role("link", name="user payments / client-id billing").focus()
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector(".levels")
    rate = tab.page.locator("section.key", has_text="producer_byte_rate")
    assert rate.locator("li.wins").inner_text().split("\n")[0] == "user payments / client-id billing"
    assert "1 MiB/s" in rate.locator("li.wins").inner_text()
    assert [each.split("\n")[0] for each in rate.locator("li.hidden").all_inner_texts()] == [
        "user payments",
        "default user",
    ]
    tab.page.go_back()
    tab.page.wait_for_selector("#results tbody tr")
    assert tab.page.input_value("#prefix") == "payments"


def test_a_list_goes_on_and_times_are_local_with_utc_on_hover(tab: Tab) -> None:
    tab.open(f"{ENTITIES}?facet=client-quotas&prefix=team")
    assert tab.page.locator("#results tbody tr").count() == 51
    tab.page.get_by_role("link", name="Show more client-quotas").press("Enter")
    expect(tab.page.locator("#results tbody tr")).to_have_count(60)
    titles = [each.get_attribute("title") for each in tab.page.locator("#results time").all()]
    assert len(titles) == 60
    assert all(title is not None and title.endswith("UTC") for title in titles)


def test_the_colours_change_and_stay(tab: Tab) -> None:
    tab.open("/console/")
    before = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.page.get_by_role("button", name="Theme").press("Enter")
    chosen = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert chosen != before
    tab.open(ENTITIES)
    assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == chosen


def test_a_sign_out_by_keyboard_ends_the_session(tab: Tab) -> None:
    tab.open("/console/")
    tab.page.locator("summary", has_text="admin").press("Enter")
    tab.page.get_by_role("button", name="Sign out").press("Enter")
    tab.page.wait_for_selector("#token")
    tab.page.goto("/console/")
    assert "/console/sign-in" in tab.page.url


def test_the_first_visit_is_small(tab: Tab) -> None:
    sizes = []
    tab.page.on("response", lambda response: sizes.append(int(response.headers.get("content-length", 0))))
    tab.open("/console/")
    assert sizes
    assert sum(sizes) < 150_000
