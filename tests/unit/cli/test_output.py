"""Tables of commands over the API, on a terminal and in a pipe; progress of long lists."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from confplane.cli import output
from tests.support.waiting import run_ready_tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    """A terminal of 40 columns that shows colours."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return _Terminal()


def test_a_pipe_gets_plain_columns_that_are_never_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("KEY", "VALUE"), [("a", "x" * 300), ("long.key", "[b]y[/b]")], title="T")
    assert capsys.readouterr().out.splitlines() == [
        "T",
        "KEY       VALUE",
        f"a         {'x' * 300}",
        "long.key  [b]y[/b]",
    ]


def test_a_terminal_gets_colours_and_no_cell_is_cut_off(monkeypatch: pytest.MonkeyPatch, terminal: _Terminal) -> None:
    monkeypatch.setattr(sys, "stdout", terminal)
    output.print_table(("KEY", "BEFORE", "AFTER"), [("acks", "0" * 60, "[red]all")])
    shown = terminal.getvalue()
    assert "\x1b[36macks" in shown
    assert shown.count("0") >= 60
    assert "[red]all" in shown


def test_keys_are_folded_between_keys_alone(monkeypatch: pytest.MonkeyPatch, terminal: _Terminal) -> None:
    monkeypatch.setattr(sys, "stdout", terminal)
    output.print_table(("BY", "KEYS"), [("User:olga-longer", "acks, controller_mutation_rate, request_percentage")])
    shown = terminal.getvalue()
    assert all(key in shown for key in ("acks", "controller_mutation_rate", "request_percentage"))


@pytest.mark.parametrize("value", ["a\nb", "a\x1b[31mb", "a\u202eb", "a\x00b"])
def test_no_value_ends_its_line_or_commands_a_terminal(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("KEY",), [(value,)])
    out = capsys.readouterr().out
    assert out.count("\n") == 2
    assert all(each.isprintable() for each in out.replace("\n", ""))
    assert out.splitlines()[1].startswith("a\\")


@pytest.mark.parametrize("value", ["a\x1b[31mb", "a\u202eb", "a\x9bb"])
def test_json_and_messages_command_no_terminal(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"a": value})
    output.echo(f"There is no {value}\nor so", err=True)
    said = capsys.readouterr()
    assert json.loads(said.out) == {"a": value}
    assert all(each.isprintable() for each in (said.out + said.err).replace("\n", ""))
    assert said.err.count("\n") == 2


def test_rows_are_printed_while_others_are_read_and_the_first_decide_the_widths(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with output.TablePrinter(("KEY", "VALUE")) as table:
        for number in range(1200):
            table.add((f"key{number}", "x"))
        assert capsys.readouterr().out.count("\n") == 1001
        table.add(("a.much.longer.key", "y"))
    last = capsys.readouterr().out.splitlines()
    assert (len(last), last[0], last[-1]) == (201, "key1000  x", "a.much.longer.key  y")


def test_later_rows_are_folded_to_the_widths_of_the_first(monkeypatch: pytest.MonkeyPatch, terminal: _Terminal) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", terminal)
    with output.TablePrinter(("KEY", "VALUE")) as table:
        for _ in range(500):
            table.add(("acks", "x" * 24))
        table.add(("acks", "y" * 30))
    assert terminal.getvalue().splitlines()[-3:] == [f"acks  {'x' * 24}", f"acks  {'y' * 24}", f"      {'y' * 6}"]


class _Input(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("rows", "pages", "paged"), [(30, True, True), (3, True, False), (30, False, False)])
def test_a_table_that_is_longer_than_the_terminal_goes_to_the_pager(
    monkeypatch: pytest.MonkeyPatch, terminal: _Terminal, tmp_path: Path, *, rows: int, pages: bool, paged: bool
) -> None:
    for name, value in {"LINES": "10", "NO_COLOR": "1", "PAGER": f"sh -c 'cat > {tmp_path}/shown'"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stdin", _Input())
    output_rows = [("acks", str(number)) for number in range(rows)]
    with output.TablePrinter(("KEY", "VALUE"), pages=pages) as table:
        for row in output_rows:
            table.add(row)
    shown = (tmp_path / "shown").read_text() if paged else terminal.getvalue()
    assert [tuple(line.split()) for line in shown.splitlines()] == [("KEY", "VALUE"), *output_rows]
    assert not (paged and terminal.getvalue())


def test_a_pager_that_ends_early_ends_the_command(monkeypatch: pytest.MonkeyPatch, terminal: _Terminal) -> None:
    for name, value in {"LINES": "10", "PAGER": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stdin", _Input())

    def print_all() -> None:
        with output.TablePrinter(("KEY",), pages=True) as table:
            for number in range(100_000):
                table.add((f"{number:0100}",))

    with pytest.raises(typer.Exit) as ended:
        print_all()
    assert ended.value.exit_code == 0


def test_columns_count_wide_characters_as_terminals_do(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("A", "B"), [("\u65e5\u672c", "x"), ("abcd", "y")])
    assert capsys.readouterr().out.splitlines() == ["A     B", "\u65e5\u672c  x", "abcd  y"]


def test_sides_of_a_change(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_changes(
        [
            {"key": "a", "before": None, "after": 2048.0},
            {"key": "b", "before": "x", "after": None},
            {"key": "c", "before": None, "after": None, "secret": True},
            {"key": "d", "before": None, "after": "y", "notKept": True},
        ]
    )
    assert capsys.readouterr().out.splitlines() == [
        "KEY  BEFORE      AFTER",
        "a    (not set)   2048",
        "b    x           (not set)",
        "c    (hidden)    (hidden)",
        "d    (not kept)  y",
    ]


async def test_progress_is_shown_from_the_patience_on(monkeypatch: pytest.MonkeyPatch, terminal: _Terminal) -> None:
    monkeypatch.setattr(sys, "stderr", terminal)

    async def items() -> AsyncIterator[int]:
        yield 1
        await run_ready_tasks()
        yield 2

    assert [item async for item in output.show_count(items(), "entities", patience_s=0)] == [1, 2]
    assert "entities" in terminal.getvalue()


async def test_quick_lists_and_pipes_show_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    async def items() -> AsyncIterator[int]:
        yield 1

    assert [item async for item in output.show_count(items(), "entities")] == [1]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("given", "answer", "said"),
    [("y\n", True, ""), ("n\n", False, "Nothing was written\n"), ("", False, "Nothing was written. Where nobody")],
)
def test_a_question_without_an_answer_names_the_option(given: str, answer: bool, said: str) -> None:  # noqa: FBT001
    app = typer.Typer()

    @app.command()
    def ask() -> None:
        sys.stdout.write(str(output.confirmed("Apply this plan?")))

    found = CliRunner().invoke(app, [], input=given)
    assert found.stdout.endswith(str(answer))
    assert said in found.stderr
    assert "Apply this plan?" in found.stderr
