"""Exchanges between Terraform's provider ``restapi`` and the service: recorded beside a real run, replayed without it.

The file ``exchanges.json`` has them in steps, each in the order of its answers.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FILE: Final = Path(__file__).with_name("exchanges.json")
_UNSTEADY: Final = ("requestId", "instance")
"""Members of a problem that are of one request alone."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer."""

    method: str
    path: str
    """The path as it was sent, with its escapes."""
    body: Any
    status: int
    answer: Any


def exchanged(http: httpx.Client, method: str, path: str, body: Any) -> Exchange:
    """Send a request to the service, and return it with its answer."""
    content = None if body is None else json.dumps(body).encode()
    response = http.request(method, path, content=content, headers={"Content-Type": "application/json"})
    answer: Any = response.json() if response.content else None
    if response.is_error:
        answer = {key: value for key, value in answer.items() if key not in _UNSTEADY}
    return Exchange(method, path, body, response.status_code, answer)


class Recorder:
    """A server between the provider and the service that keeps what passes.

    Args:
        http: A client of the service, with its token.
    """

    def __init__(self, http: httpx.Client) -> None:
        self.steps: dict[str, list[Exchange]] = {}
        self._http = http
        self._lock = threading.Lock()
        self._kept: list[Exchange] = []
        self.url = ""

    def begin(self, step: str) -> None:
        """Begin a step."""
        with self._lock:
            self._kept = self.steps[step] = []

    def pass_on(self, method: str, path: str, body: Any) -> Exchange:
        """Send a request to the service, and keep the exchange."""
        found = exchanged(self._http, method, path, body)
        with self._lock:
            self._kept.append(found)
        return found

    def as_json(self) -> dict[str, list[dict[str, Any]]]:
        """Return the steps in the form of the file, each in the order of its answers."""
        return {step: [asdict(each) for each in some] for step, some in self.steps.items()}


def in_one_order(steps: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Return steps with the exchanges of each sorted: the provider sends requests of different objects side by side."""
    return {step: sorted(some, key=lambda each: json.dumps(each, sort_keys=True)) for step, some in steps.items()}


@contextmanager
def recorder(url: str, token: str) -> Iterator[Recorder]:
    """Run a recorder before a service for the length of a block."""
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as http:
        running = Recorder(http)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline()
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                found = running.pass_on(self.command, self.path, json.loads(text) if text else None)
                answer = (
                    b""
                    if found.answer is None
                    else json.dumps(found.answer, separators=(",", ":"), ensure_ascii=False).encode()
                )
                self.send_response(found.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Print nothing: the exchanges are kept."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        running.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield running
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
