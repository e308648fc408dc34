"""One Confplane on a cluster: its import, its processes that are killed and started again, its trail and tree."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import httpx

from confplane.domain.entities import Entity
from tests.kraft.outside.trail_check import Row
from tests.support import servers
from tests.support.commands import Commands
from tests.support.service import Service
from tests.support.stepping import CONSTANTS_VARIABLE
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.devstack.postgres import Postgres
    from confplane.devstack.zookeeper import ZooKeeper

_KINDS: Final = {
    "observe": {"import", "observed"},
    "adopt": {"import", "observed", "put-back", "change"},
    "enforce": {"import", "put-back", "change"},
}
"""The kinds of changes by mode."""
_LISTS: Final = ("client-quotas", "configs")
_ROOTS: Final = ("users", "clients", "ips", "topics", "brokers", "groups", "client-metrics")


class Side:
    """One of them, with a store and a trail of its own.

    Args:
        name: In messages.
        directory: Where it logs.
        zookeeper: Its ensemble.
        postgres: The server of its trail.
        kafka: The settings of the cluster.
        mode: The mode of the target.
        processes: Their number; one of them leads.
        constants: Of the processes: ``module.NAME`` -> value.

    Attributes:
        service: The first process.
        services: All of them.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        zookeeper: ZooKeeper,
        postgres: Postgres,
        kafka: dict[str, Any],
        mode: str = "observe",
        processes: int = 1,
        constants: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self._mode = mode
        self._connect, database = servers.make_chroot(zookeeper.hosts), servers.make_migrated(postgres)
        own: dict[str, Any] = {"connect": self._connect, "dsn": database.service_dsn, "cluster": {"kafka": kafka}}
        self._commands = Commands(directory, **own)
        if constants is not None:
            own |= {"module": "tests.support.stepping", "settings": {CONSTANTS_VARIABLE: json.dumps(constants)}}
        self.services = [Service(directory / f"service-{number}", **own) for number in range(processes)]
        self.service = self.services[0]
        self._http = httpx.Client(
            base_url=f"{self.service.url}/v1/clusters",
            headers={"Authorization": f"Bearer {self.service.token}"},
            trust_env=False,
            timeout=60,
        )

    def begin(self) -> None:
        """Import, choose the mode, and start the processes."""
        steps = [["import", "--apply"], *([] if self._mode == "observe" else [[self._mode, "--reason", "a test"]])]
        for arguments in steps:
            said = self._commands.run_here("target", *arguments)
            assert said.code == 0, said
        for service in self.services:
            service.start()

    def kill(self, number: int = 0) -> None:
        """End a process at once, and start it again."""
        self.services[number].stop(kill=True)
        self.services[number].start(wait_ready=False)

    def end(self) -> None:
        """Stop the processes."""
        self._http.close()
        for service in self.services:
            if service.running:
                service.stop()

    def log_offset(self) -> int | None:
        """Return the offset up to which the metadata log was followed."""
        target = self._http.get("default").raise_for_status().json()["target"]
        return None if target["logOffset"] is None else int(target["logOffset"])

    def poll(self) -> bool:
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
        """Return the changes that are committed or were put back, once none is open; all are of the mode's kinds."""
        changes = [each for each in self.settled() if each["outcome"] == "committed" or each["kind"] == "put-back"]
        strangers = [each for each in changes if each["kind"] not in _KINDS[self._mode]]
        assert not strangers, strangers
        return [row for each in changes for row in _rows(each)]

    def settled(self) -> list[dict[str, Any]]:
        """Return :meth:`changes` once none is open."""

        def settled() -> list[dict[str, Any]] | None:
            changes = self.changes()
            return None if any(each["outcome"] == "open" for each in changes) else changes

        found: list[dict[str, Any]] = wait_for(settled, why=f"{self.name}: a change stays open")
        return found

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
        """Return all that the processes logged and the trail has, as text."""
        logs = [each.log.read_text(errors="replace") for each in self.services]
        return "".join(logs) + json.dumps(self.changes())


def _paths(raw: KazooClient, path: str) -> Iterator[str]:
    if raw.exists(path):
        yield path
        for child in raw.get_children(path):
            yield from _paths(raw, f"{path}/{child}")


def _rows(change: dict[str, Any]) -> list[Row]:
    entities, observed = change["entities"], change["observed"]
    assert len(entities) == 1 or change["kind"] in {"import", "change"}, change
    assert (observed is None) == (change["kind"] == "change"), change
    seen = observed or {"after": None, "until": -1, "at": change["createdAt"], "exact": False, "writes": 0}
    return [
        Row(
            name=change["changeId"],
            entity=entity["id"],
            before=entity["before"],
            after=entity["after"],
            lower=None if seen["after"] is None else int(seen["after"]),
            until=int(seen["until"]),
            at_ms=round(datetime.fromisoformat(seen["at"]).timestamp() * 1000),
            exact=seen["exact"],
            writes=seen["writes"],
            kind=change["kind"],
            revision=None if change["revision"] is None else int(change["revision"]),
        )
        for entity in entities
    ]
