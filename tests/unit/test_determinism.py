"""Rules for the tests themselves, checked on their syntax trees: nothing depends on time, luck or another test.

The gate breaks none. ``determinism.json`` says how often a file of the other suites breaks a rule. A count that is too
low fails as well as one that is too high, so the list can only shrink.
"""

from __future__ import annotations

import ast
import json
import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings

from tests.suites import GATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TESTS: Final = Path(__file__).parents[1]
ALLOWED: Final = Path(__file__).with_name("determinism.json")
CHECKED: Final = frozenset({*GATE, "console", "features", "support", "conftest.py"})
"""The files and folders of the gate."""
IN_PLACE: Final = {("support/waiting.py", "clock compared"), ("support/processes.py", "signal ignored")}
"""The functions to use instead of breaking a rule."""

CLOCKS: Final = frozenset(
    [f"time.{name}{unit}" for name in ("time", "monotonic", "perf_counter") for unit in ("", "_ns")]
    + ["datetime.now", "datetime.datetime.now"]
)
SHORTEST_VALIDITY_S: Final = 30
LISTINGS: Final = frozenset({"list_topics", "list_groups", "list_consumer_groups"})
"""Functions that list everything of a server."""
SHARED_TABLES: Final = ("pg_stat_activity", "pg_locks", "pg_database", "pg_roles")
COUNT: Final = "SELECT count(*)"
OWN_ROWS: Final = ("datname", "database", "relation", "pid", "rolname", "application_name")
"""Columns of the shared tables that can select the rows of one test."""
LISTENERS: Final = frozenset({"bind", "create_server", "start_server", "HTTPServer", "ThreadingHTTPServer"})
STARTS: Final = frozenset({"subprocess.Popen", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"})


def name_of(node: ast.AST) -> str:
    """Return a dotted name, or the empty string for any other expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{name_of(value)}.{attr}"
    return ""


def last_of(node: ast.AST) -> str:
    return name_of(node).rpartition(".")[2]


def keyword(call: ast.Call, name: str) -> object:
    """Return the value of a keyword if it is a literal, True if it is not, and None without the keyword."""
    found = [getattr(each.value, "value", True) for each in call.keywords if each.arg == name]
    return found[0] if found else None


def is_private(name: object) -> bool:
    last = str(name).rpartition(".")[2]
    return last.startswith("_") and not last.startswith("__")


def reads_clock(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Call) and name_of(each.func) in CLOCKS for each in ast.walk(node))


def is_constant(node: ast.AST) -> bool:
    """Return True for numbers and names of constants except 0: a pause of 0 only lets other tasks run."""
    match node:
        case ast.Constant(value=value):
            return value != 0
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
        case ast.BinOp(left=left, right=right):
            return is_constant(left) and is_constant(right)
    return False


def sleeps(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=func, args=[seconds, *_]):
            return name_of(func) in {"time.sleep", "asyncio.sleep"} and is_constant(seconds)
    return False


def is_short_validity(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(left=ast.Call() as left, op=ast.Add(), right=ast.Constant(value=int() | float() as seconds)):
            return reads_clock(left) and 0 < seconds < SHORTEST_VALIDITY_S
        case ast.BinOp(
            left=ast.Call() as left,
            op=ast.Add(),
            right=ast.Call(
                func=func, keywords=[ast.keyword(arg=unit, value=ast.Constant(value=int() | float() as count))]
            ),
        ):
            seconds = count * {"milliseconds": 0.001, "seconds": 1}.get(str(unit), SHORTEST_VALIDITY_S)
            return reads_clock(left) and last_of(func) == "timedelta" and 0 < seconds < SHORTEST_VALIDITY_S
    return False


def sets_private_name(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=func, args=[ast.Constant(value=name), *_] | [_, ast.Constant(value=name), *_]):
            return last_of(func) in {"setattr", "delattr"} and is_private(name)
        case ast.Attribute(value=value, attr=attr, ctx=ast.Store() | ast.Del()):
            return is_private(attr) and name_of(value) not in {"self", "cls"}
    return False


def is_fixed_name(node: ast.AST) -> bool:
    """Groups and topics of a real server."""
    match node:
        case ast.Call(func=func, args=names):
            fixed = any(isinstance(name, ast.Constant) for name in names)
            return (last_of(func) == "create_topics" and fixed) or isinstance(keyword(node, "group_id"), str)
        case ast.Dict(keys=keys, values=values):
            return any(
                isinstance(key, ast.Constant) and key.value == "group.id" and isinstance(value, ast.Constant)
                for key, value in zip(keys, values, strict=True)
            )
    return False


def is_fixed_port(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=func, args=arguments) if last_of(func) in LISTENERS:
            flat = [each for given in arguments for each in (given.elts if isinstance(given, ast.Tuple) else [given])]
            ports = [keyword(node, "port"), *(getattr(each, "value", None) for each in flat)]
            return any(type(port) is int and port > 0 for port in ports)
        case ast.List(elts=words) | ast.Tuple(elts=words):
            values = [getattr(word, "value", None) for word in words]
            return any(
                option == "--port" and str(port).isdecimal() and port != "0" for option, port in pairwise(values)
            )
    return False


def is_absolute_count(node: ast.AST) -> bool:
    match node:
        case ast.Compare(left=ast.Call(func=ast.Name(id="len"), args=[listed]), comparators=[ast.Constant()]):
            return any(isinstance(each, ast.Call) and last_of(each.func) in LISTINGS for each in ast.walk(listed))
        case ast.Constant(value=str() as sql):
            condition = sql.partition("WHERE")[2]
            shared = COUNT in sql and any(f"FROM {table}" in sql for table in SHARED_TABLES)
            return shared and not any(column in condition for column in OWN_ROWS)
    return False


def is_unseeded(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=func, args=arguments):
            name, method = name_of(func), last_of(func)
            of_module = name == f"random.{method}" and method.islower()
            without_seed = method in {"Random", "SystemRandom", "default_rng"} and not arguments
            return of_module or without_seed or (name == "settings" and keyword(node, "derandomize") is False)
    return False


def ignores_signals(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=func, args=[_, handler]):
            return name_of(func) == "signal.signal" and last_of(handler) == "SIG_IGN"
        case ast.Call():
            return keyword(node, "restore_signals") is False
    return False


def shares_process_group(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=func):
            own = keyword(node, "start_new_session") or keyword(node, "process_group") is not None
            return name_of(func) in STARTS and not own
    return False


RULES: Final[dict[str, Callable[[ast.AST], bool]]] = {
    "literal sleep": sleeps,
    "short validity": is_short_validity,
    "private name set": sets_private_name,
    "fixed name": is_fixed_name,
    "fixed port": is_fixed_port,
    "absolute count": is_absolute_count,
    "random without seed": is_unseeded,
    "signal ignored": ignores_signals,
    "process group shared": shares_process_group,
}


def compared_clocks(tree: ast.Module) -> Iterable[int]:
    """Return the lines that compare a clock, or a time that the same function has read from one."""
    found = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        nodes = list(ast.walk(function))
        times = {name_of(each.targets[0]) for each in nodes if isinstance(each, ast.Assign) and reads_clock(each.value)}
        for node in nodes:
            if isinstance(node, ast.Compare) and any(
                isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops
            ):
                names = {name_of(each) for each in ast.walk(node)} - {""}
                if reads_clock(node) or names & times:
                    found.add(node.lineno)
    return sorted(found)


def violations(source: str, file: str) -> list[tuple[str, int]]:
    """Return the broken rules of a file, with their lines."""
    tree = ast.parse(source)
    found = [
        (rule, getattr(node, "lineno", 0)) for node in ast.walk(tree) for rule, breaks in RULES.items() if breaks(node)
    ]
    if any(clock in source for clock in CLOCKS):
        found += [("clock compared", line) for line in compared_clocks(tree)]
    is_program = "\nif __name__ ==" in source and "subprocess." in source
    if is_program and "start_children_with_defaults()" not in source:
        found.append(("signal ignored", 1))
    # Clients of unit tests have a group in their configs, and never reach a server.
    in_unit = {"fixed name"} if file.startswith("unit/") else set()
    return [each for each in found if each[0] not in in_unit and (file, each[0]) not in IN_PLACE]


def test_tests_do_not_depend_on_time_luck_or_each_other() -> None:
    allowed = {file: Counter(rules) for file, rules in json.loads(ALLOWED.read_text()).items()}
    assert not [file for file in allowed if file.partition("/")[0] in CHECKED], "nothing is allowed in the gate"
    files = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("*.py")}
    found = {file: violations(path.read_text(), file) for file, path in files.items() if "node_modules" not in file}
    wrong = [
        f"tests/{file}: {rule}: {len(lines)} in lines {lines}, and {allowed.get(file, Counter())[rule]} allowed"
        for file in sorted(found.keys() | allowed.keys())
        for rule in sorted({*allowed.get(file, ()), *(each for each, _ in found.get(file, ()))})
        if len(lines := [line for each, line in found.get(file, ()) if each == rule])
        != allowed.get(file, Counter())[rule]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_examples_of_properties_are_the_same_in_each_run() -> None:
    assert settings.get_profile("gate").derandomize


def test_processes_of_tests_do_not_ignore_signals() -> None:
    assert signal.SIG_IGN not in {signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}


@pytest.mark.parametrize(
    ("rule", "broken", "kept"),
    [
        ("literal sleep", "time.sleep(0.1)", "time.sleep(0)"),
        ("literal sleep", "await asyncio.sleep(1)", "await asyncio.Event().wait()"),
        ("literal sleep", "time.sleep(HEAD_S + 2)", "time.sleep(pause_s)"),
        ("clock compared", "def f(): assert time.monotonic() < end", "def f(): wait(time.monotonic() + 60)"),
        (
            "clock compared",
            "def f():\n s = time.time()\n assert made > s",
            "def f():\n s = time.time()\n assert made == s",
        ),
        ("clock compared", "def f(): assert at <= datetime.now(UTC)", "def f(): assert at <= now"),
        ("short validity", "time.monotonic() + 5", "time.monotonic() + 60"),
        ("short validity", "datetime.now(UTC) + timedelta(seconds=0.3)", "datetime.now(UTC) + timedelta(days=1)"),
        ("short validity", "int(time.time()) + 29", "int(time.time()) - 29"),
        ("private name set", "monkeypatch.setattr(module, '_PIECE', 2)", "monkeypatch.setattr(module, 'PIECE', 2)"),
        ("private name set", "patch.setattr('a.b._C', 2)", "patch.setattr('a._b.C', 2)"),
        ("private name set", "other._name = 1", "self._name = 1"),
        ("private name set", "a.b, other._name = 1, 2", "assert other._name == 2"),
        ("private name set", "del other._name", "del other.__dict__"),
        ("fixed name", "consume({'group.id': 'billing'})", "consume({'group.id': group})"),
        ("fixed name", "KafkaConsumer(group_id='billing')", "KafkaConsumer(group_id=user)"),
        ("fixed name", "admin.create_topics('orders')", "admin.create_topics(f'orders-{number}')"),
        ("fixed port", "server.bind(('127.0.0.1', 9092))", "server.bind(('127.0.0.1', 0))"),
        ("fixed port", "asyncio.start_server(serve, port=8080)", "asyncio.start_server(serve, port=port)"),
        ("fixed port", "run(['dev', '--port', '8080'])", "run(['dev', '--port', str(port)])"),
        ("absolute count", "assert len(admin.list_topics()) == 3", "assert len(own(admin)) == 3"),
        (
            "absolute count",
            f"query('{COUNT} FROM {SHARED_TABLES[0]}')",
            f"query('{COUNT} FROM {SHARED_TABLES[0]} WHERE datname = current_database()')",
        ),
        ("random without seed", "random.Random()", "random.Random(seed)"),
        ("random without seed", "random.shuffle(items)", "dice.shuffle(items)"),
        ("random without seed", "settings(derandomize=False)", "settings(max_examples=50)"),
        ("signal ignored", "signal.signal(SIGINT, signal.SIG_IGN)", "signal.signal(SIGINT, signal.SIG_DFL)"),
        ("signal ignored", "\nif __name__ == '__main__': subprocess.run(x)", "subprocess.run(x)"),
        ("process group shared", "subprocess.Popen(x)", "subprocess.Popen(x, start_new_session=True)"),
    ],
)
def test_each_rule_tells_a_violation_from_a_similar_source(rule: str, broken: str, kept: str) -> None:
    assert {found for found, _ in violations(broken, "kraft/test_any.py")} == {rule}
    assert violations(kept, "kraft/test_any.py") == []


def test_a_group_of_a_client_in_a_unit_test_is_no_violation() -> None:
    assert violations("Config({'group.id': 'billing'})", "unit/client/test_any.py") == []
