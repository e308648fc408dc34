"""Objects of the store and of the services are complete after their constructor: no attribute appears later."""

from __future__ import annotations

import ast
from collections import deque
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKAGE: Final = Path(__file__).parents[2] / "app" / "confplane"
FOLDERS: Final = ("store", "services")
OF_LIBRARIES: Final = {"LoopHandler": {"_running"}}
"""Attributes that a base class of a library has, by class."""


def late_attributes(sources: Iterable[str]) -> list[str]:
    """Return the attributes that only methods set which no constructor calls, as ``Class.attribute``."""
    classes = {
        node.name: node for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)
    }
    found = []
    for name, node in classes.items():
        early = OF_LIBRARIES.get(name, set()) | set(chain.from_iterable(map(_early, _with_bases(node, classes))))
        found += [f"{name}.{each}" for method in _methods(node).values() for each in _set(method) if each not in early]
    return sorted(set(found))


def _with_bases(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> Iterator[ast.ClassDef]:
    yield node
    for base in node.bases:
        known = classes.get(ast.unparse(base).partition("[")[0])
        if known is not None:
            yield from _with_bases(known, classes)


def _early(node: ast.ClassDef) -> Iterator[str]:
    """Yield the attributes that the body of a class and its constructor set, with the methods that this calls."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield item.target.id
        elif isinstance(item, ast.Assign):
            yield from (each.id for each in item.targets if isinstance(each, ast.Name))
        elif isinstance(item, ast.FunctionDef):
            yield item.name
    methods, called = _methods(node), deque(["__init__", "__new__"])
    done: set[str] = set()
    while called:
        method = methods.get(name := called.popleft())
        if method is None or name in done:
            continue
        done.add(name)
        yield from _set(method)
        called += [
            each.func.attr
            for each in ast.walk(method)
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and _of_self(each.func)
        ]


def _methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {each.name: each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}


def _set(method: ast.AST) -> list[str]:
    return [
        each.attr
        for each in ast.walk(method)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and _of_self(each)
    ]


def _of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def test_no_attribute_appears_after_the_constructor() -> None:
    files = [path for folder in FOLDERS for path in sorted((PACKAGE / folder).rglob("*.py"))]
    found = late_attributes(path.read_text("utf-8") for path in files)
    assert not found, "set these in the constructor:\n" + "\n".join(found)


def test_late_attributes_are_found() -> None:
    base = "class Base:\n    declared: int\n    def __init__(self):\n        self.one, self.two = 1, 2\n"
    late = "class Late(Base):\n    def start(self):\n        self.one = self.declared = 2\n        self.late = 3\n"
    begun = "class Begun:\n    def __init__(self):\n        self.begin()\n    def begin(self):\n        self.term = 1\n"
    assert late_attributes([base, late, begun]) == ["Late.late"]
