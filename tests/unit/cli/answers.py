"""Made-up answers of a service for ``confplane configs``, and the requests that it was sent."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx

BASE: Final = "/v1/clusters/default/"


class Recorded:
    """Made-up answers by path: bodies, responses, or functions of the request; and the requests that were sent."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        path = request.url.path.removeprefix(BASE)
        given = self.answers.get(path, self.answers.get(path.rpartition(":")[2]))
        if callable(given):
            made: httpx.Response = given(request)
            return made
        if isinstance(given, httpx.Response):
            return given
        assert given is not None, f"no answer to {path}"
        return httpx.Response(200, json=given)

    @property
    def sent(self) -> list[tuple[str, Any]]:
        """Paths with their query, and bodies."""
        return [
            (str(each.url).partition(BASE)[2], json.loads(each.content) if each.content else None)
            for each in self.requests
        ]


def entity(**names: str | None) -> list[dict[str, str | None]]:
    """An entity as the API has it."""
    return [{"entityType": kind.replace("_", "-"), "entityName": name} for kind, name in names.items()]


def entry(values: dict[str, Any], **names: str | None) -> dict[str, Any]:
    """An entry of an answer to a describe."""
    return {"entity": entity(**names), "values": [{"key": key, "value": value} for key, value in values.items()]}


def described(kind: str, name: str, *configs: tuple[str, str | None, str]) -> dict[str, Any]:
    """A result of configs:describe."""
    return {
        "errorCode": 0,
        "errorMessage": None,
        "resourceType": kind,
        "resourceName": name,
        "configs": [
            {
                "name": key,
                "value": value,
                "isSensitive": value is None,
                "configSource": source,
                "synonyms": [
                    {"name": key, "value": value, "source": source},
                    {"name": f"log.{key}", "value": "5", "source": "DEFAULT_CONFIG"},
                ],
            }
            for key, value, source in configs
        ],
    }
