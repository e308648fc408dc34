"""Kafka and Confplane, each on a chroot of its own: both are asked alike, and both chroots are read and reset alike."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import httpx
from kazoo.exceptions import NoNodeError

from confplane.store.znodes import change_path, next_sequence, sequence_of
from tests.interop.differential.steps import TYPES, Method, Step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kazoo.client import KazooClient

    from tests.interop.admin import JavaCalls
    from tests.interop.differential.steps import Body, Tree

SOURCE: Final = Path(__file__).with_name("Rpc.java")
_CHANGES: Final = "/config/changes"


class Kafka:
    """A broker, asked over the wire.

    Args:
        rpc: The running ``Rpc.java``.
        zk: A client on its chroot.
    """

    def __init__(self, rpc: JavaCalls, zk: KazooClient) -> None:
        self._rpc = rpc
        self.znodes = Znodes(zk)

    async def ask(self, step: Step) -> Body:
        """Send a request and return the body of its response."""
        body: Body = await asyncio.to_thread(self._rpc.call, step.method.api, body=wired(step))
        return body


def wired(step: Step) -> Body:
    """Return a body as Kafka's rendering takes it: quotas are doubles, so none may look like an integer."""
    if step.method is not Method.ALTER_QUOTAS:
        return step.body
    entries = [
        {**entry, "ops": [{**op, "value": float(op["value"])} for op in entry["ops"]]} for entry in step.body["entries"]
    ]
    return {**step.body, "entries": entries}


class Confplane:
    """A service, asked over HTTP.

    Args:
        url: Of the cluster.
        token: For it.
        zk: A client on its chroot.
    """

    def __init__(self, url: str, token: str, zk: KazooClient) -> None:
        self._url = url
        self._http = httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=120, trust_env=False)
        self.znodes = Znodes(zk)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ask(self, step: Step) -> Body:
        """Send a request and return its answer, or the problem that it is answered with."""
        # A describe is to see what was last written to the chroot, whoever wrote it.
        answer = await self._http.post(
            f"{self._url}{step.method.path}",
            # Not httpx's own JSON, which has no NaN: that it is refused is part of what is compared.
            content=json.dumps(step.body).encode(),
            headers={"Content-Type": "application/json"},
            params=None if step.method.alters else {"consistency": "strong"},
        )
        body: Body = json.loads(answer.content)
        body["httpStatus"] = answer.status_code
        return body


class Znodes:
    """The znodes below ``/config`` of a chroot.

    Args:
        zk: A client on it.
    """

    def __init__(self, zk: KazooClient) -> None:
        self._zk = zk
        self._next = 0
        self.catch_up()

    def catch_up(self) -> None:
        """Take all notifications that there are as read."""
        stat = self._zk.retry(self._zk.exists, _CHANGES)
        assert stat is not None, f"{_CHANGES} is not there"
        self._next = next_sequence(stat.cversion, stat.children_count)

    def news(self) -> list[bytes]:
        """Return the data of all notifications since the last call or write."""
        found: list[bytes] = []
        while True:
            try:
                data, _ = self._zk.retry(self._zk.get, change_path(self._next))
            except NoNodeError:
                return found
            found.append(data)
            self._next += 1

    def read(self, paths: Iterable[str]) -> Tree:
        """Return the data of znodes; of those that are not there, None."""
        asked = {path: self._zk.get_async(f"/config/{path}") for path in paths}
        return {path: _data(answer) for path, answer in asked.items()}

    def walk(self) -> Tree:
        """Return all entities with data."""
        paths = [f"{kind}/{name}" for kind in TYPES for name in self._children(f"/config/{kind}")]
        below = {
            path: self._zk.get_children_async(f"/config/{path}/clients") for path in paths if path.startswith("users/")
        }
        for user, answer in below.items():
            try:
                paths += [f"{user}/clients/{name}" for name in answer.get()]
            except NoNodeError:
                continue
        return {path: data for path, data in self.read(paths).items() if data is not None}

    def _children(self, path: str) -> list[str]:
        try:
            found: list[str] = self._zk.retry(self._zk.get_children, path)
        except NoNodeError:
            return []
        return found

    def reset(self, wanted: Tree) -> set[str]:
        """Have exactly these entities, each with a notification where it changed; return the paths of those."""
        there = self.walk()
        changed = {path for path in there.keys() | wanted.keys() if there.get(path) != wanted.get(path)}
        self.write({path: wanted.get(path) for path in changed})
        return changed

    def write(self, tree: Tree) -> None:
        """Write entities, None deletes; then notify of each as Kafka does."""
        for path in sorted(tree, key=lambda path: (-path.count("/"), path)):
            data = tree[path]
            full = f"/config/{path}"
            if data is None:
                self._remove(full)
            elif not self._zk.exists(full):
                self._zk.create(full, data, makepath=True)
            else:
                self._zk.set(full, data)
        for path in sorted(tree):
            payload = f'{{"version":2,"entity_path":"{path}"}}'.encode()
            made = self._zk.create(f"{_CHANGES}/config_change_", payload, sequence=True)
            number = sequence_of(made.rpartition("/")[2])
            assert number is not None
            self._next = max(self._next, number + 1)

    def _remove(self, full: str) -> None:
        # A user whose own data go but who has clients stays as a parent, as Kafka's nodes of such users are.
        below = self._children(f"{full}/clients")
        if below:
            self._zk.set(full, b"")
        else:
            self._zk.delete(full, recursive=True)


def _data(answer: Any) -> bytes | None:
    try:
        data: bytes = answer.get()[0]
    except NoNodeError:
        return None
    return data or None


def describe_broker(name: str) -> Step:
    """Return the request that describes a broker, or with the empty name the default of all."""
    resource = {"resourceType": 4, "resourceName": name, "configurationKeys": None}
    return Step(
        Method.DESCRIBE_CONFIGS, {"resources": [resource], "includeSynonyms": True, "includeDocumentation": False}
    )
