"""The page at ``/docs``: Swagger UI over the specification, with nothing fetched from anywhere else.

Swagger UI's files come with the package fastapi-offline, which follows its releases.
"""

from importlib.resources import files
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.responses import FileResponse, Response

from app.api.definitions_page import source_hash
from app.api.edge import DOCS, DOCS_SCRIPT, DOCS_STYLE
from app.api.responses import PreparedResponse
from app.api.routes import StrictRoute

router = APIRouter(route_class=StrictRoute, include_in_schema=False)

_FILES: Final = Path(str(files("fastapi_offline"))) / "static"
_START: Final = 'SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true});'
# Its links are relative, so that it works behind a proxy that adds a prefix.
_PAGE: Final = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Confplane</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{DOCS_STYLE.removeprefix("/")}">
</head>
<body>
<div id="swagger-ui"></div>
<script src="{DOCS_SCRIPT.removeprefix("/")}"></script>
<script>{_START}</script>
</body>
</html>
""".encode()
_HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": (
        f"default-src 'none'; script-src 'self' {source_hash(_START)}; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_FILE_HEADERS: Final = {"cache-control": "max-age=3600", "x-content-type-options": "nosniff"}


@router.get(DOCS)
async def page() -> Response:
    """The page itself."""
    return PreparedResponse(_PAGE, _HEADERS)


@router.get(DOCS_SCRIPT)
async def script() -> Response:
    """Swagger UI."""
    return FileResponse(_FILES / "swagger-ui-bundle.js", media_type="text/javascript", headers=_FILE_HEADERS)


@router.get(DOCS_STYLE)
async def style() -> Response:
    """Its looks."""
    return FileResponse(_FILES / "swagger-ui.css", media_type="text/css", headers=_FILE_HEADERS)
