"""The API of a running service, beside the pages of its console."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import httpx

if TYPE_CHECKING:
    from tests.support.service import Service

CLUSTER = "/v1/clusters/default"


class Api:
    """The API of a service, with the admin token or another one."""

    def __init__(self, service: Service, token: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {token or service.token}"}
        self.client = httpx.Client(base_url=service.url, headers=headers, trust_env=False, timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def put(self, path: str, body: dict[str, Any], **query: str) -> str:
        """Set the content of an entity, and return the change's id."""
        response = self.client.put(f"{CLUSTER}/{path}", json=body, params=query)
        assert response.status_code == 200, response.text
        return str(response.headers.get("confplane-change-id"))

    def get(self, path: str, **query: str) -> Any:
        """Return the JSON of a read."""
        response = self.client.get(f"{CLUSTER}/{path}", params=query)
        assert response.status_code == 200, response.text
        return response.json()

    def token(self, principal: str, *grants: dict[str, Any], **options: Any) -> str:
        """Create a token of a user with some grants."""
        for grant in grants:
            body = {"principal": principal, "permission": "allow", **grant}
            self.client.post("/v1/grants", json=body).raise_for_status()
        made = self.client.post("/v1/tokens", json={"principal": principal, **options}).raise_for_status()
        return str(made.json()["token"])
