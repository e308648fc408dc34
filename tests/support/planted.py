"""Secrets that are planted in every input, and all outputs, which are searched for them."""

from __future__ import annotations

import base64
import itertools
import json
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from tests.unit.client.generate import specification

if TYPE_CHECKING:
    from tests.support.service import Service


KEYLESS = (
    *("/v1/tokens", "/v1/grants"),
    *(f"/v1/clusters/default/{name}" for name in ("webhooks", "schedules", "change-requests")),
)
"""Prefixes of paths whose changes accept no Idempotency-Key."""


class Planted:
    """Texts that must not appear in any output, each unlike any other text."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._number = itertools.count()

    def __call__(self, way: str) -> str:
        """Return a new secret for one kind of input."""
        number = next(self._number)
        text = f"Zq{number:03d}" + base64.b32encode(f"w{number:03d}".encode()).decode().rstrip("=") + f"{number:03d}qZ"
        self.texts[f"{number} {way}"] = text
        return text

    def stored(self, value: str) -> None:
        """Add the parts of an encoded password."""
        fields = dict(part.split(":", 1) for part in value.split(","))
        for name in ("encryptedPassword", "initializationVector"):
            self.texts[f"{name} {len(self.texts)}"] = fields[name].rstrip("=")
        self.texts[f"salt {len(self.texts)}"] = fields["salt"][:32]

    def found_in(self, text: str) -> list[str]:
        """Return the inputs whose secrets are in a text, unchanged or in other forms."""
        return [
            f"{way}: {form[:60]}"
            for way, secret in self.texts.items()
            for form in {secret, base64.b64encode(secret.encode()).decode().rstrip("="), secret.encode().hex()}
            if form in text
        ]


@dataclass
class Evidence:
    """The output texts by source, and the requests."""

    planted: Planted
    said: dict[str, str] = field(default_factory=dict)
    operations: set[str] = field(default_factory=set)
    statuses: dict[str, int] = field(default_factory=dict)
    stored: dict[int, dict[str, str]] = field(default_factory=dict)
    """Brokers' nodes before the rotation."""


class Asker:
    """Sends requests and keeps all answers."""

    def __init__(self, service: Service, evidence: Evidence) -> None:
        self.spec: dict[str, Any] = specification()
        self._evidence = evidence
        self._http = httpx.Client(
            base_url=service.url, headers={"Authorization": f"Bearer {service.token}"}, trust_env=False, timeout=60
        )
        self._templates = [
            (
                method.upper(),
                re.compile(re.sub(r"\\\{id\\\}", ".+", re.sub(r"\\\{(?!id)\w+\\\}", "[^/]+", re.escape(path)))),
                found,
            )
            for path, methods in self.spec["paths"].items()
            for method, found in methods.items()
            if "operationId" in found
        ]

    def __call__(self, way: str, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **options.pop("headers", {})}
        keyless = path.endswith(("/registrations", "/instances/one", ":plan")) or path.startswith(KEYLESS)
        if method != "GET" and not keyless:
            headers["Idempotency-Key"] = str(uuid.uuid4())  # the content stored under it is searched as well
        answer = self._http.request(method, path, content=content, headers=headers, **options)
        evidence = self._evidence
        name = f"{len(evidence.said)} {way}: {method} {path}"
        evidence.said[name] = f"{answer.status_code} {answer.headers.multi_items()!r} {answer.text}"
        evidence.statuses[way] = answer.status_code
        evidence.operations |= {
            found["operationId"]
            for verb, pattern, found in self._templates
            if verb == method and pattern.fullmatch(path)
        }
        return answer

    def shown_once(self, way: str, answer: httpx.Response, member: str = "token") -> str:
        """Remove a secret from the only answer that shows it, add it to the secrets, and return it."""
        secret: str = answer.json()[member]
        said = self._evidence.said
        last = next(reversed(said))
        assert secret in said[last]
        said[last] = said[last].replace(secret, "shown once")
        self._evidence.planted.texts[f"{way} {len(self._evidence.planted.texts)}"] = secret
        return secret

    def close(self) -> None:
        self._http.close()
