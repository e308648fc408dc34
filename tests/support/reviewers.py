"""Authors and reviewers over HTTP: API tokens with grants on a whole cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import httpx

from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.support.service import Service

PROPOSES: Final = ("DESCRIBE_CONFIGS", "PROPOSE")
REVIEWS: Final = ("ALTER_CONFIGS",)


def token_of(service: Service, name: str, operations: tuple[str, ...]) -> str:
    """Return the token of a new user with these operations on all entities, once the service accepts both."""
    headers = {"Authorization": f"Bearer {service.token}"}
    with httpx.Client(base_url=service.url, headers=headers, trust_env=False, timeout=60) as admin:
        for operation in operations:
            grant = {"principal": f"User:{name}", "operation": operation, "resourceType": "cluster"}
            assert admin.post("/v1/grants", json=grant).is_success
        token: str = admin.post("/v1/tokens", json={"principal": f"User:{name}"}).json()["token"]
    own = {"Authorization": f"Bearer {token}"}

    def accepted() -> bool:
        with httpx.Client(base_url=service.url, headers=own, trust_env=False, timeout=60) as client:
            answer = client.get("/v1/whoami")
            return answer.is_success and all(operation in answer.text for operation in operations)

    wait_for(accepted)
    return token
