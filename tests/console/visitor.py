"""A browser's steps by hand: pages, cookies and forms of the console of a running service."""

from __future__ import annotations

import html
import re
import secrets
from typing import TYPE_CHECKING, Any, Self

import httpx

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Service

SIGN_IN = "/console/sign-in"


class Visitor:
    """One browser at the console of a service.

    Args:
        service: The service.
        token: The token to sign in with; None for the admin token.
    """

    def __init__(self, service: Service, token: str | None = None) -> None:
        self.token = service.token if token is None else token
        self.client = httpx.Client(base_url=service.url, trust_env=False, timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Open a page, without following redirects."""
        return self.client.get(path, **options)

    def page(self, path: str) -> str:
        """Return the HTML of a page that must be shown."""
        response = self.get(path)
        assert response.status_code == 200, (response.status_code, response.headers, response.text[-2000:])
        return response.text

    def post(self, path: str, form: dict[str, str], *, page: str | None = None, **options: Any) -> httpx.Response:
        """Send a form with the token of a page's form; without a page, with what ``form`` has."""
        fields = form if page is None else {"csrf": csrf_of(self.get(page).text), **form}
        headers = {"Origin": str(self.client.base_url).rstrip("/"), **options.pop("headers", {})}
        return self.client.post(path, data=fields, headers=headers, **options)

    def sign_in(self, **form: str) -> httpx.Response:
        """Sign in with the token."""
        return self.post(SIGN_IN, {"token": self.token, **form}, page=SIGN_IN)

    def signed_in(self) -> Self:
        """Sign in, which must succeed."""
        response = self.sign_in()
        assert response.status_code == 303, response.text
        return self

    @property
    def session(self) -> str | None:
        """The session's cookie."""
        return self.client.cookies.get("confplane_session")


def console_key(directory: Path) -> dict[str, str]:
    """Return the variables of a service with a console, whose replicas have the same key."""
    file = directory / "console-key"
    file.write_text(secrets.token_urlsafe(32) + "\n")
    return {"CONFPLANE_CONSOLE_KEY_FILE": str(file)}


def csrf_of(page: str) -> str:
    """Return the token of a page's forms."""
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None, page[:2000]
    return html.unescape(found[1])


def text_of(page: str) -> str:
    """Return the words of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def continued(response: httpx.Response) -> str:
    """Return the address to which the page after the choice of an issuer leads by itself."""
    assert response.status_code == 200, response.text
    found = re.search(r'<meta http-equiv="refresh" content="0;url=([^"]+)">', response.text)
    assert found is not None, response.text
    return html.unescape(found[1])
