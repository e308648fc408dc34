"""A page of a second origin in the same browser: it can't act in the console, read its pages, or frame them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.support.issuer import Issuer

if TYPE_CHECKING:
    from tests.browser.tab import Tab
    from tests.support.service import Service

READ = """url => fetch(url, {credentials: "include"}).then(answer => answer.text(), () => "refused")"""
SENT = """url => fetch(url, {method: "POST", credentials: "include", mode: "no-cors", body: new URLSearchParams({a: "b"})})
    .then(() => "sent", () => "refused")"""


def test_a_page_of_another_origin_neither_acts_nor_reads_nor_frames(tab: Tab, service: Service) -> None:
    console = f"{service.url}/console/"
    attack = f"""<!doctype html><form method="post" action="{console}sign-out"><button>Win a prize</button></form>
    <iframe src="{console}"></iframe>"""
    with Issuer() as evil, tab.context.new_page() as page:
        evil.documents["/"] = 200, attack.encode()
        # The same host with another port is the same site: cookies that are SameSite are sent.
        page.goto(f"{evil.url}/")
        assert page.frames[1].url.startswith("chrome-error:")
        assert page.evaluate(READ, console) == "refused"
        page.evaluate(SENT, f"{console}sign-out")
        page.get_by_role("button", name="Win a prize").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("another site")
    tab.open("/console/")
    assert tab.page.url == console, "the session is still there"
