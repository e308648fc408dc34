"""The write path stays short: the files of one write from ``AlterService`` to the stores, and the types that wrap it."""

from __future__ import annotations

import ast
import itertools
import re
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

import confplane
from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import Edit, Mode
from tests.support.service import ServiceInThread
from tests.support.stores import soon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Database
    from tests.support.world import World

ROOT: Final = Path(confplane.__file__).parent
REQUESTS: Final = 6
TYPES: Final = (
    "Edit",
    "PreparedEdit",
    "EntitiesChange",
    "EntityDraft",
    "Draft",
    "ChangeRun",
    "IntentEntity",
    "Intent",
    "EntityWrite",
    "Transaction",
    "Committed",
    "Outcome",
    "EditResult",
    "EntryResult",
)
"""The types that an edit is wrapped in, from the request to the answer. The goal is 10, and the list may only shrink."""
OTHERS: Final = {"AuditRecord"}
"""Types that hold one of these, and that one edit does not go through: of searches."""

QUOTA: Final = (FacetName.CLIENT_QUOTAS, Entity.of(user="path"), Mode.REPLACE, "producer_byte_rate", (2, 3), 24)
FILES_OF_PUT: Final = 48
"""The greatest number of files of a PUT, from the socket to both stores. The goal is 32, and the number may only fall."""
MOST_REQUESTS: Final = 100
BROKER: Final = (FacetName.CONFIGS, Entity.of(broker="7"), Mode.ALTER, "log.cleaner.threads", ("2", "3"), 25)
"""A write of each kind, and the greatest number of files. The goal is 20, and the numbers may only fall."""


class FileTrace:
    """Collects the files of the package in which a line runs, in this thread and in threads that start after it."""

    def __init__(self) -> None:
        self._files: set[str] | None = None

    def _trace(self, frame: Any, event: str, _argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(f"{ROOT}/"):
            return None
        if self._files is not None and event in {"call", "line"}:
            self._files.add(name)
        return self._trace

    @contextmanager
    def installed(self) -> Iterator[None]:
        before, of_threads = sys.gettrace(), threading.gettrace()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(of_threads)

    @contextmanager
    def collecting(self) -> Iterator[set[str]]:
        files: set[str] = set()
        self._files = files
        try:
            yield files
        finally:
            self._files = None


@pytest.mark.parametrize(("facet", "entity", "mode", "key", "values", "most"), [QUOTA, BROKER], ids=["quota", "broker"])
async def test_one_write_runs_code_of_few_files(
    world: World, facet: FacetName, entity: Entity, mode: Mode, key: str, values: tuple[Any, Any], most: int
) -> None:
    """A file counts if a line of it runs during each of several writes, so timers do not count."""
    trace = FileTrace()
    runs: list[set[str]] = []
    with trace.installed():
        one = await world.replica()
        cluster_facet = one.parts.clusters.get("default").facets[facet]
        for number in range(REQUESTS):
            edit = Edit(entity, (Op(key, OpType.SET, values[number % 2]),), mode)
            caller = Caller.operator("User:admin", "127.0.0.1", "r", soon(30))
            with trace.collecting() as files:
                [result] = await one.parts.alter.alter(cluster_facet, [edit], caller)
            assert result.error is None
            assert result.change_id is not None
            runs.append(files)
    always = sorted(str(Path(name).relative_to(ROOT)) for name in set.intersection(*runs))
    counted = [name for name in always if not name.startswith("domain/")]
    assert {"services/changes/alter.py", "store/write/transactions.py", "audit/trail.py"} <= set(counted)
    assert len(counted) <= most, counted


class Requests:
    """The requests of docs/architecture.md, each with a value that none had before."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self._values = itertools.count(1)

    def put(self) -> httpx.Response:
        body = {"quotas": {"producer_byte_rate": next(self._values)}}
        return self._http.put("/client-quotas/user=path", json=body)

    def alter(self) -> httpx.Response:
        configs = [{"name": "log.cleaner.threads", "configOperation": "SET", "value": str(next(self._values))}]
        resource = {"resourceType": "BROKER", "resourceName": "7", "configs": configs}
        return self._http.post("/configs:incrementalAlter", json={"resources": [resource]})

    def describe(self) -> httpx.Response:
        component = {"entityType": "user", "matchType": "exact", "match": "path"}
        return self._http.post("/client-quotas:describe", json={"components": [component]})

    def revert(self, change_id: str) -> httpx.Response:
        return self._http.post("/audit:revert", json={"changeId": change_id})


def test_requests_run_code_of_files_that_the_architecture_names(
    tmp_path: Path, chroot: str, migrated: Database
) -> None:
    """Timers run code of other files, but hardly during each of many requests."""
    text = (ROOT.parents[1] / "docs/architecture.md").read_text()
    trace, counts, unnamed = FileTrace(), {}, {}
    with (
        trace.installed(),
        ServiceInThread(tmp_path, connect=chroot, dsn=migrated.service_dsn) as service,
        httpx.Client(base_url=f"{service.url}/v1/clusters/default", trust_env=False, timeout=60) as http,
    ):
        http.headers["Authorization"] = f"Bearer {service.token}"
        requests = Requests(http)
        for name in ("put", "alter", "describe", "revert"):
            always: set[str] | None = None
            for _ in range(MOST_REQUESTS):
                given = [requests.put().headers["Confplane-Change-Id"]] if name == "revert" else []
                with trace.collecting() as files:
                    answer = getattr(requests, name)(*given)
                assert answer.status_code == 200, answer.text
                always = files if always is None else always & files
                found = sorted(str(Path(each).relative_to(ROOT)) for each in always)
                counted = [each for each in found if not each.startswith("domain/")]
                unnamed[name] = [each for each in counted if each not in text and f"`{Path(each).name}`" not in text]
                if not unnamed[name] and (name != "put" or len(counted) <= FILES_OF_PUT):
                    break
            counts[name] = len(counted)
    assert not any(unnamed.values()), unnamed
    assert counts["put"] <= FILES_OF_PUT
    assert "audit/trail.py" in counted


def test_no_other_type_wraps_an_edit() -> None:
    """A type wraps an edit if a field of it, or an argument of its constructor, is a type that does."""
    mentioned: dict[str, set[str]] = {}
    for path in (*ROOT.glob("services/changes/*.py"), *ROOT.glob("services/ports/tra*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                mentioned[node.name] = {name for each in _annotations(node) for name in re.findall(r"\w+", each)}
    assert set(TYPES) <= mentioned.keys()
    wrappers = set(TYPES) | OTHERS
    found = {name for name, names in mentioned.items() if names & set(TYPES)} - wrappers
    assert not found
    # Each is one of a kind: a type that wraps nothing does not belong into the list.
    ends = {"Edit", "Draft", "IntentEntity", "EntityWrite", "Committed", "Outcome"}
    assert {name for name in TYPES if not mentioned[name] & (wrappers | {"Drafts", "Write"})} <= ends


def _annotations(of: ast.ClassDef) -> Iterator[str]:
    for node in of.body:
        if isinstance(node, ast.AnnAssign):
            yield ast.unparse(node.annotation)
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield from (ast.unparse(each.annotation) for each in node.args.args if each.annotation is not None)
