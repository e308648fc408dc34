"""The specification at ``/openapi.json``, and the page at ``/docs``: Swagger UI without external resources.

Both need no authentication, so all responses are prepared bytes. Swagger UI's files come from the package
fastapi-offline, which follows its releases. They are always sent compressed, to a quarter of their size or less,
because every browser accepts this.
"""

import asyncio
import gzip
from importlib.resources import files
from pathlib import Path
from typing import Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from confplane.api.responses import JSON, PreparedResponse, encoded
from confplane.api.routing.operations import read
from confplane.api.routing.routes import Decorator, Routes
from confplane.pages import inline, render, source_hash

routes = Routes(tag=None)

_DOCS: Final = "/docs"
_SCRIPT: Final = "/docs/swagger-ui-bundle.js"
_STYLE: Final = "/docs/swagger-ui.css"

_FILES: Final = Path(str(files("fastapi_offline"))) / "static"
_START: Final = inline("docs.js")
# Its links are relative, so that it works behind a proxy that adds a prefix.
_PAGE: Final = render(
    "docs.html", style_path=_STYLE.removeprefix("/"), script_path=_SCRIPT.removeprefix("/"), start=_START
).encode()
_HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": (
        f"default-src 'none'; script-src 'self' {source_hash(_START)}; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
}
_FILE_HEADERS: Final = {
    "cache-control": "max-age=3600",
    "content-encoding": "gzip",
}
_compressed: Final[dict[str, bytes]] = {}
"""Contents by name of the file."""
_SPECIFICATION: Final = "specification"
"""Attribute of ``app.state`` with the task that renders the specification."""


def _open(path: str) -> Decorator:
    """Return a decorator that makes an open route, which the specification does not list."""
    facts = read("", {}, limit=None, is_open=True, listed=False)
    return routes.get(path, facts)


@_open("/openapi.json")
async def openapi(request: Request) -> Response:
    """Return the specification."""
    state = request.app.state
    rendering: asyncio.Task[bytes] | None = getattr(state, _SPECIFICATION, None)
    if rendering is None:
        # Rendering takes a second or so, once; in a thread, so that other requests are not blocked.
        rendering = asyncio.create_task(asyncio.to_thread(lambda: orjson.dumps(request.app.openapi())))
        setattr(state, _SPECIFICATION, rendering)
    return PreparedResponse(await asyncio.shield(rendering), [JSON])


@_open(_DOCS)
async def page() -> Response:
    """The page."""
    return PreparedResponse(_PAGE, encoded(_HEADERS))


@_open(_SCRIPT)
async def script() -> Response:
    """The script of Swagger UI."""
    return await _file("swagger-ui-bundle.js", "text/javascript")


@_open(_STYLE)
async def style() -> Response:
    """The style of Swagger UI."""
    return await _file("swagger-ui.css", "text/css")


async def _file(name: str, media_type: str) -> Response:
    content = _compressed.get(name)
    if content is None:
        # In a thread, once, so that other requests are not blocked.
        content = _compressed[name] = await asyncio.to_thread(_compress, name)
    return PreparedResponse(content, encoded({"content-type": f"{media_type}; charset=utf-8", **_FILE_HEADERS}))


def _compress(name: str) -> bytes:
    return gzip.compress((_FILES / name).read_bytes(), mtime=0)
