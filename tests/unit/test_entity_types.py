"""Entity types, their plurals and Kafka's resource types are listed in one place each, in ``confplane.domain``."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confplane.domain.config_resources import ConfigResourceType
from confplane.domain.entities import EntityType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKAGE: Final = Path(__file__).parents[2] / "app" / "confplane"
_SCHEMA: Final = "a schema, in the order of the specification"
_KAFKAS_TOOL: Final = "options and lines of Kafka's tool"
_PARAMETERS: Final = "names of arguments to those of parameters"
ALLOWED: Final = {
    "api/clients/models.py": _SCHEMA,
    "api/configs/models.py": _SCHEMA,
    "api/definitions.py": "client configs have kinds of their own",
    "api/entity_configs.py": _SCHEMA,
    "api/resources/filters.py": _PARAMETERS,
    "api/service/models.py": _SCHEMA,
    "cli/export_commands.py": _PARAMETERS,
    "cli/remote/configs/arguments.py": _KAFKAS_TOOL,
    "cli/remote/configs/command.py": _KAFKAS_TOOL,
    "cli/remote/configs/options.py": _KAFKAS_TOOL,
    "client/families/manifests.py": _PARAMETERS,
    "client/families/resources.py": _PARAMETERS,
    "console/definitions.py": "sections of a page",
    "console/entities.py": "facets on a page",
    "extra_key_settings.py": "names of settings",
    "services/ports/kafka.py": "types that are polled together, client quotas among them",
}
"""Files that list the names for a reason of their own. This list only gets shorter."""
FEW: Final = 3
"""From so many names on a collection is a list of the types."""
NAMES: Final = (
    frozenset(EntityType),
    frozenset(kind.plural for kind in EntityType),
    frozenset(kind.name for kind in ConfigResourceType),
)


def lists(source: str) -> list[int]:
    """Return the lines in which a file lists names of types."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.expr, ast.stmt))
        for texts in _collections(node)
        if any(len(names.intersection(texts)) >= FEW for names in NAMES)
    ]


def _collections(node: ast.AST) -> Iterator[set[str]]:
    match node:
        case ast.Dict():
            yield _texts(node.keys)
            yield _texts(node.values)
        case ast.Set() | ast.Tuple() | ast.List():
            yield _texts(node.elts)
        case ast.Call():
            yield _texts(node.args)
        case ast.ClassDef():
            yield _texts(each.value for each in node.body if isinstance(each, ast.Assign))


def _texts(nodes: Iterable[ast.AST | None]) -> set[str]:
    return {each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def test_types_are_listed_in_the_domain_only() -> None:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(("domain/", "client/types/")) and (lines := lists(path.read_text("utf-8"))):
            found[name] = lines
    unknown = {name: lines for name, lines in found.items() if name not in ALLOWED}
    assert not unknown, "derive them from confplane.domain.entities and .config_resources"
    assert found.keys() == ALLOWED.keys(), "remove files from the list that no longer need it"


def test_lists_of_types_are_found_in_each_form() -> None:
    assert lists('A = {"topic": 1, "broker": 2, "group": 3}') == [1]
    assert lists('A = {1: "TOPIC", 2: "BROKER", 3: "GROUP"}') == [1]
    assert lists('A = ("users", "clients", "ips")\nB = f("user", "ip", "topic")') == [1, 2]
    assert lists('A = Literal["user", "ip", "topic"] | None') == [1]
    assert lists('class A(StrEnum):\n    USER = "user"\n    IP = "ip"\n    TOPIC = "topic"\n') == [1]
    assert lists('A = ("users", "clients", "TOPIC", "BROKER", "topic", "ip")') == []
