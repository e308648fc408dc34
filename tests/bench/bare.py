"""The reference of the reads: one bare Starlette route that answers prepared bytes, on the service's server settings.

``python -m tests.bench.bare JSON`` with ``port``, ``body`` and ``headers`` serves a GET of quotas, a GET of effective
client configs, and a describe of client configs or quotas, until SIGTERM.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from confplane.listener import uvicorn_options
from confplane.settings import HttpSettings

if TYPE_CHECKING:
    from starlette.requests import Request


def main(port: int, body: str, headers: dict[str, str]) -> None:
    """Serve."""
    prepared = body.encode()

    async def read(_: Request) -> Response:
        return Response(prepared, headers=headers)

    async def describe(request: Request) -> Response:
        await request.body()
        return Response(prepared, headers=headers)

    app = Starlette(
        routes=[
            Route("/v1/clusters/{cluster}/client-quotas/{id}", read),
            Route("/v1/clusters/{cluster}/client-configs/{id}/effective", read),
            Route("/v1/clusters/{cluster}/client-configs:describe", describe, methods=["POST"]),
            Route("/v1/clusters/{cluster}/client-quotas:describe", describe, methods=["POST"]),
        ]
    )
    uvicorn.run(app, http="httptools", **uvicorn_options(HttpSettings(port=port)))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
