"""``/readyz`` is open to all: names of entities, znodes and people are told to those alone who show a valid token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from tests.support.service import ServiceInThread

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support import servers

FROZEN = b'{"version":1,"reason":"because of olga","principal":"User:olga","since":0}'
NAMES = ("mallory-lock", "trudy", "peggy+odd", "because of olga")


def test_names_need_a_token(tmp_path: Path, chroot: str, raw_zk: KazooClient, migrated: servers.Database) -> None:
    raw_zk.ensure_path("/config/changes/mallory-lock")
    raw_zk.create("/config/users/trudy", b"no JSON", makepath=True)
    raw_zk.create("/config/users/peggy+odd", b"{}")
    raw_zk.ensure_path("/confplane")
    raw_zk.create("/confplane/freeze", FROZEN)
    with ServiceInThread(tmp_path, connect=chroot, dsn=migrated.service_dsn) as service:
        for token in (None, "not-the-token", service.token):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            answer = httpx.get(f"{service.url}/readyz", headers=headers, trust_env=False, timeout=60)
            assert answer.status_code == 200
            body: dict[str, Any] = answer.json()
            assert len(body["warnings"]) == 3, body["warnings"]
            assert body["clusters"]["default"]["frozen"]
            for name in NAMES:
                assert (name in answer.text) is (token == service.token), (name, body)
