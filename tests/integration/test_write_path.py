"""The write path stays short: the files of one write from ``AlterService`` to the stores, and the types that wrap it."""

from __future__ import annotations

import ast
import re
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import confplane
from confplane.domain.entities import Entity
from confplane.domain.facets import FacetName
from confplane.domain.ops import Op, OpType
from confplane.services.changes.callers import Caller
from confplane.services.changes.edits import Edit, Mode
from tests.support.stores import soon

if TYPE_CHECKING:
    from collections.abc import Iterator

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
