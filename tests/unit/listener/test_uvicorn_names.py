"""The names of uvicorn without a public interface that the listener uses: the table of docs/guarantees.md has each."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from confplane.listener import protocol

GUARANTEES: Final = (Path(__file__).parents[3] / "docs" / "guarantees.md").read_text("utf-8")
OWNERS: Final = {
    "self": HttpToolsProtocol,
    "super()": HttpToolsProtocol,
    "cycle": RequestResponseCycle,
    "self.cycle": RequestResponseCycle,
    "self.flow": FlowControl,
}
"""The classes of uvicorn by the expressions that hold their objects."""
PUBLIC: Final = {
    *("connection_made", "connection_lost", "data_received", "pause_writing", "resume_writing"),
    *("on_message_begin", "on_headers_complete", "on_body", "on_message_complete"),
}
"""Callbacks of asyncio and of httptools."""


def names(of: type) -> set[str]:
    """Return the names of a class and of the attributes of its objects."""
    return set(re.findall(r"self\.(\w+)", inspect.getsource(of))) | set(vars(of))


def used() -> set[str]:
    """Return the names of uvicorn that the connection uses or overrides."""
    tree = ast.parse(inspect.getsource(protocol.BoundedProtocol))
    owned = {text: names(owner) for text, owner in OWNERS.items()}
    found = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in owned.get(ast.unparse(node.value), ())
    }
    overridden = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)} & owned["self"]
    return {name for name in found | overridden if name not in PUBLIC and not name.startswith("__")}


def test_the_table_names_what_is_used_of_uvicorn() -> None:
    table = GUARANTEES.partition("\n| names | needed for |")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    classes = {owner.__name__ for owner in OWNERS.values()}
    assert named - classes - {"STATUS_LINE"} == used()
    assert classes | {"STATUS_LINE"} <= named
