"""Names of classes and folders: a class name is unique within the package, and no folder has a name that tools ignore."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "app" / "confplane"
GENERATED: Final = ("client/types/", "kraft/wire/messages/")
"""Classes that are named after the schemas of the OpenAPI document, and after the messages of Kafka's protocol."""
SAME_ERRORS: Final = {"client/errors.py", "domain/errors.py"}
"""The client library raises an error of the same name for each error of the service."""
IGNORED_FOLDERS: Final = {"target", "build", "dist", "out"}
"""Common entries of global .gitignore files: a folder of such a name is easily left out of a commit."""


def repeated(files: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the class names that several files define, with these files. ``files`` maps paths to sources."""
    found = defaultdict(list)
    for path, source in files.items():
        if path.startswith(GENERATED) or not re.search(r"^\s*class ", source, re.MULTILINE):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path)
    return {name: paths for name, paths in sorted(found.items()) if len(paths) > 1 and set(paths) != SAME_ERRORS}


def test_class_names_are_unique() -> None:
    files = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    found = [f"{name}: {', '.join(paths)}" for name, paths in repeated(files).items()]
    assert not found, "rename all but one of each:\n" + "\n".join(found)


def test_repeated_names_are_found_but_for_those_that_may_repeat() -> None:
    one = "class One:\n    class Inner: ...\n"
    assert repeated({"a.py": one, "b/c.py": one}) == {"Inner": ["a.py", "b/c.py"], "One": ["a.py", "b/c.py"]}
    assert repeated({"a.py": "class One: ...", "b.py": "class Two: ..."}) == {}
    assert repeated({"client/types/a.py": one, "kraft/wire/messages/b.py": one, "api/models.py": one}) == {}
    assert repeated({"client/errors.py": one, "domain/errors.py": one}) == {}
    assert list(repeated({"client/errors.py": one, "domain/errors.py": one, "a.py": one})) == ["Inner", "One"]


def test_no_folder_has_a_name_that_tools_ignore() -> None:
    found = [
        str(path.relative_to(ROOT))
        for folder in ("app", "tests")
        for path in (ROOT / folder).rglob("*")
        if path.name in IGNORED_FOLDERS and path.is_dir()
    ]
    assert found == []
