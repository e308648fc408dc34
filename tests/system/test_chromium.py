"""The example in TypeScript in a real browser: a page of another origin does a conditional PUT."""

from __future__ import annotations

import html
import json
import re
import subprocess
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import httpx

from confplane.domain.entities import Entity
from tests.support import tools
from tests.support.service import ServiceInThread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support import servers

EXAMPLE = tools.ROOT / "examples" / "browser" / "quota.ts"
PAGE = tools.ROOT / "tests" / "browser" / "page.html"
USER = "Zoë b (ci)"
STRICT = ("--strict", "--noUncheckedIndexedAccess", "--target", "es2022", "--module", "es2022", "--lib", "es2022,dom")


class Handler(SimpleHTTPRequestHandler):
    """Serves the files of a directory, quietly."""

    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".js": "text/javascript"}  # noqa: RUF012 - as its base

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@contextmanager
def pages(directory: Path) -> Iterator[int]:
    """Serve the files of a directory; the port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(directory))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def shown(chromium: Path, url: str, profile: Path) -> dict[str, Any]:
    """Open a page in Chromium, and return the findings that it shows in the end."""
    done = subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",  # which needs more rights than a container has; the pages are the test's own
            "--disable-gpu",
            "--no-proxy-server",
            f"--user-data-dir={profile}",
            "--virtual-time-budget=60000",
            "--dump-dom",
            url,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    [text] = re.findall(r'<pre id="found">(.*?)</pre>', done.stdout)
    found: dict[str, Any] = json.loads(html.unescape(text))
    return found


def test_a_page_of_another_origin_does_a_conditional_put(
    chroot: str, migrated: servers.Database, tmp_path: Path
) -> None:
    chromium, compiler = tools.obtain(tools.chromium), tools.obtain(tools.typescript)
    site = tmp_path / "site"
    subprocess.run([compiler, *STRICT, "--outDir", site, EXAMPLE], check=True, timeout=120)
    (site / "page.html").write_bytes(PAGE.read_bytes())
    with pages(site) as port:
        settings = {"CONFPLANE_HTTP__CORS_ORIGINS": json.dumps([f"http://127.0.0.1:{port}"])}
        with ServiceInThread(tmp_path, connect=chroot, dsn=migrated.service_dsn, settings=settings) as service:
            cluster = f"{service.url}/v1/clusters/default"
            told = {"cluster": cluster, "token": service.token, "user": USER}
            (site / "settings.json").write_text(json.dumps(told))

            other = shown(chromium, f"http://localhost:{port}/page.html", tmp_path / "other")
            assert other == {"error": "TypeError"}, (
                "the browser sends nothing for a page of an origin that is not named"
            )
            headers = {"Authorization": f"Bearer {service.token}"}
            url = f"{cluster}/client-quotas/{Entity.of(user=USER).id}"
            assert httpx.get(url, headers=headers, trust_env=False).status_code == 404

            found = shown(chromium, f"http://127.0.0.1:{port}/page.html", tmp_path / "named")
            assert found["made"]["done"], found
            assert found["read"] == {"quotas": {"producer_byte_rate": 1024}, "etag": found["made"]["etag"]}
            assert found["changed"]["done"]
            assert found["changed"]["revision"].isdigit(), "headers of the API may be read"
            assert found["late"] == {"done": False, "etag": found["changed"]["etag"]}
            assert found["refused"].startswith("Authentication needed"), "so may refusals"
            stored = httpx.get(url, headers=headers, trust_env=False)
            assert stored.json()["quotas"] == {"producer_byte_rate": 2048}
            assert stored.headers["etag"] == found["changed"]["etag"]
