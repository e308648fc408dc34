"""Static files, named by their content, so that browsers keep each for a year and never use an old one."""

from __future__ import annotations

import gzip
import hashlib
from importlib import resources
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

router = APIRouter()

_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def _load() -> dict[str, tuple[str, bytes, str]]:
    """Return the URL name, the compressed content and the media type of each file, by its name."""
    found = {}
    own = resources.files("confplane.console").joinpath("static").iterdir()
    for file in (*own, resources.files("confplane.pages").joinpath("templates", "console.css")):
        stem, _, suffix = file.name.rpartition(".")
        if suffix in _TYPES:
            content = file.read_bytes()
            name = f"{stem}.{hashlib.sha256(content).hexdigest()[:12]}.{suffix}"
            found[file.name] = name, gzip.compress(content, 9, mtime=0), _TYPES[suffix]
    return found


_FILES: Final = _load()
_BY_URL: Final = {name: (content, kind) for name, content, kind in _FILES.values()}


def asset(file: str) -> str:
    """Return the path of a static file."""
    return f"/console/assets/{_FILES[file][0]}"


@router.get("/console/assets/{name}")
async def static_file(name: str) -> Response:
    """A static file, always compressed: every browser accepts that."""
    found = _BY_URL.get(name)
    if found is None:
        return Response("There is no such file", 404, media_type="text/plain")
    content, kind = found
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Content-Encoding": "gzip"}
    return Response(content, headers=headers, media_type=kind)
