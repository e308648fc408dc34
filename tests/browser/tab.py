"""A tab of a real Chromium at the console: its keyboard, its checks, and pictures of its pages."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from playwright.sync_api import expect

from tests.support import tools

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

    from tests.support.service import Service

PICTURES = "CONFPLANE_PICTURES"
"""The variable with the directory into which the pictures of the documentation are written."""
_RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
_WIDE, _NARROW, _HEIGHT = 1280, 400, 800
_MOST_TABS = 150


class Tab:
    """A page of a browser, and what it must not do: violations, errors, and requests to other hosts.

    Args:
        browser: The browser.
        service: The service.

    Attributes:
        page: The page.
        faults: What it did nevertheless.
    """

    def __init__(self, browser: Browser, service: Service) -> None:
        self.service = service
        self.faults: list[str] = []
        self.context = browser.new_context(base_url=service.url, viewport={"width": _WIDE, "height": _HEIGHT})
        self.page: Page = self.context.new_page()
        self.page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self._check_host(request.url))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def _check_host(self, url: str) -> None:
        if not url.startswith(self.service.url + "/"):
            self.faults.append(f"a request to {url}")

    def sign_in(self, token: str | None = None) -> None:
        """Sign in with the keyboard alone: the field has the focus."""
        self.page.goto("/console")
        expect(self.page.locator("#token")).to_be_focused()
        self.page.keyboard.type(token or self.service.token)
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("nav.side")

    def open(self, path: str) -> None:
        """Open a page, with all that it loads afterwards."""
        self.page.goto(path, wait_until="networkidle")

    def tab_to(self, wanted: Locator) -> None:
        """Press the tab key until an element has the focus."""
        wanted.wait_for()
        for _ in range(_MOST_TABS):
            if wanted.evaluate("element => element === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{wanted} has no focus after {_MOST_TABS} tabs")

    def press(self, role: Any, name: str, *, exact: bool = False) -> None:
        """Go to a link or a button with the tab key, and press it."""
        self.tab_to(self.page.get_by_role(role, name=name, exact=exact).first)
        self.page.keyboard.press("Enter")

    def type(self, label: str, text: str) -> None:
        """Go to the field whose label begins with a text by the tab key, and replace its text."""
        self.tab_to(self.page.get_by_label(re.compile(f"^{re.escape(label)}")))
        self.page.keyboard.press("Control+A")
        self.page.keyboard.type(text)

    def check(self) -> None:
        """Check the page as it is: in light colours on a wide screen, and in dark colours on a narrow one."""
        script = tools.obtain(tools.axe).read_text()
        # Evaluated by the debugger, which the policy of the page does not bind.
        self.page.evaluate(script)
        for colours, width in (("light", _WIDE), ("dark", _NARROW)):
            self._show(colours, width)
            found = self.page.evaluate("rules => axe.run(document, rules)", _RULES)
            violations = [f"{self.page.url} {each['id']}: {each['nodes'][0]['html']}" for each in found["violations"]]
            assert violations == []
        self.check_width()

    def check_width(self) -> None:
        """Check that the page is not wider than the screen, be it wide or narrow."""
        for width in (_NARROW, _WIDE):
            self._show("light", width)
            assert self.page.evaluate("document.documentElement.scrollWidth") <= width, (self.page.url, width)

    def picture(self, name: str, *, narrow: bool = False) -> None:
        """Write a picture of the page for the documentation: a wide one in light, or a narrow one in dark colours."""
        directory = os.environ.get(PICTURES)
        if directory is None:
            return
        width = _NARROW if narrow else _WIDE
        self._show("dark" if narrow else "light", width)
        end = self.page.evaluate("(scrollTo(0, 0), main.lastElementChild.getBoundingClientRect().bottom + 24)")
        clip: Any = {"x": 0, "y": 0, "width": width, "height": min(end, _HEIGHT)}
        self.page.screenshot(path=Path(directory) / f"{name}.png", clip=clip)
        self._show("light", _WIDE)

    def _show(self, colours: Any, width: int) -> None:
        self.page.emulate_media(color_scheme=colours)
        self.page.set_viewport_size({"width": width, "height": _HEIGHT})
