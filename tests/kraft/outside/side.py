"""One Confplane that observes a cluster: its import, its process that is killed and started again, its trail and tree."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import httpx

from app.domain.entities import Entity
from tests.kraft.outside.judge import Row
from tests.support import servers
from tests.support.commands import Commands
from tests.support.service import Service
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from app.devstack.postgres import Postgres
    from app.devstack.zookeeper import ZooKeeper

_FOLLOWING: Final = {"import", "observed"}
_LISTS: Final = ("client-quotas", "configs")
_ROOTS: Final = ("users", "clients", "ips", "topics", "brokers", "groups", "client-metrics")


class Side:
    """One of the observers.

    Args:
        name: In messages.
        directory: Where it logs.
        zookeeper: Its ensemble.
        postgres: The server of its trail.
        kafka: The settings of the cluster.
    """

    def __init__(
        self, name: str, directory: Path, *, zookeeper: ZooKeeper, postgres: Postgres, kafka: dict[str, Any]
    ) -> None:
        self.name = name
        self._connect, database = servers.make_chroot(zookeeper.hosts), servers.make_migrated(postgres)
        own: dict[str, Any] = {"connect": self._connect, "dsn": database.service_dsn, "cluster": {"kafka": kafka}}
        self._commands = Commands(directory, **own)
        self.service = Service(directory / "service", **own)
        self._http = httpx.Client(
            base_url=f"{self.service.url}/v1/clusters",
            headers={"Authorization": f"Bearer {self.service.token}"},
            trust_env=False,
            timeout=60,
        )

    def begin(self) -> None:
        """Import, and start the process."""
        said = self._commands.run("target", "import", "--apply")
        assert said.code == 0, said
        self.service.start()

    def kill(self) -> None:
        """End the process at once, and start it again."""
        self.service.stop(kill=True)
        self.service.start(wait_ready=False)

    def end(self) -> None:
        """Stop the process."""
        self._http.close()
        if self.service.running:
            self.service.stop()

    def log_offset(self) -> int | None:
        """Return the offset up to which the metadata log was followed."""
        target = self._http.get("default").raise_for_status().json()["target"]
        return None if target["logOffset"] is None else int(target["logOffset"])

    def look(self) -> bool:
        """Read all that is observed, as new as the cluster; False while it can't be."""
        try:
            answers = [
                self._http.get(f"default/{each}", params={"consistency": "strong", "pageSize": "1"}) for each in _LISTS
            ]
        except httpx.TransportError:
            return False
        return all(each.status_code == httpx.codes.OK for each in answers)

    def changes(self) -> list[dict[str, Any]]:
        """Return the trail in the order of its commits, without the changes of the target itself."""
        found: list[dict[str, Any]] = []
        token = ""
        while True:
            answer = self._http.get(
                "default/audit", params={"pageSize": "1000", **({"pageToken": token} if token else {})}
            )
            page = answer.raise_for_status().json()
            found += page["items"]
            token = page.get("nextPageToken") or ""
            if not token:
                break
        found = [each for each in found if each["entities"][0]["facet"] != "cluster"]
        return sorted(found, key=lambda each: (int(each["revision"] or 0), each["changeId"]))

    def rows(self) -> list[Row]:
        """Return the committed changes, once none is open; all of them are to follow the cluster."""
        changes: list[dict[str, Any]] = wait_for(self._settled, why=f"{self.name}: a change stays open")
        committed = [each for each in changes if each["outcome"] == "committed"]
        assert {each["kind"] for each in committed} <= _FOLLOWING, [
            each for each in committed if each["kind"] not in _FOLLOWING
        ]
        return [row for each in committed for row in _rows(each)]

    def _settled(self) -> list[dict[str, Any]] | None:
        changes = self.changes()
        return None if any(each["outcome"] == "open" for each in changes) else changes

    def tree(self) -> dict[str, dict[str, str]]:
        """Return the configs of all znodes that have any, by entity, as they are in ZooKeeper."""
        found: dict[str, dict[str, str]] = {}
        for raw in servers.raw_client(self._connect):
            for root in _ROOTS:
                for path in _paths(raw, f"/config/{root}"):
                    data = raw.get(path)[0]
                    config = json.loads(data)["config"] if data else {}
                    if config:
                        found[Entity.from_path(path.removeprefix("/config/")).id] = config
        return found

    def said(self) -> str:
        """Return all that the process logged and the trail has, as text."""
        return self.service.log.read_text(errors="replace") + json.dumps(self.changes())


def _paths(raw: KazooClient, path: str) -> Iterator[str]:
    if raw.exists(path):
        yield path
        for child in raw.get_children(path):
            yield from _paths(raw, f"{path}/{child}")


def _rows(change: dict[str, Any]) -> list[Row]:
    entities, observed = change["entities"], change["observed"]
    assert len(entities) == 1 or change["kind"] == "import", change
    return [
        Row(
            name=change["changeId"],
            entity=entity["id"],
            before=entity["before"],
            after=entity["after"],
            lower=None if observed["after"] is None else int(observed["after"]),
            until=int(observed["until"]),
            at_ms=round(datetime.fromisoformat(observed["at"]).timestamp() * 1000),
            exact=observed["exact"],
            writes=observed["writes"],
        )
        for entity in entities
    ]
