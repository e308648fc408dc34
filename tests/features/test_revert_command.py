"""``confplane revert`` on a real service: what is shown, what is asked, and what is done."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.commands import run_here as run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.commands import Said
    from tests.support.service import Service

pytestmark = pytest.mark.usefixtures("command_environment")

QUOTA: Final = "producer_byte_rate"


def rows(said: Said) -> list[list[str]]:
    return [line.split() for line in said.out.splitlines()[1:]]


def history(entity: str) -> list[dict[str, Any]]:
    """The changes of an entity, newest first."""
    return [json.loads(line) for line in run("history", entity, "--json").out.splitlines()]


def put(entity: str, *values: str) -> str:
    """Set keys, and return the id of the change."""
    assert run("set", entity, *values).code == 0
    return str(history(entity)[0]["changeId"])


def test_a_change_is_shown_and_reverted() -> None:
    put("user=undone", f"{QUOTA}=1", "acks=all")
    change = put("user=undone", f"{QUOTA}=2", "acks=1")
    expected = [["user=undone", "acks", "1", "all"], ["user=undone", QUOTA, "2", "1"]]
    shown = run("revert", "--change", change, "--validate-only")
    assert (shown.code, sorted(rows(shown)), shown.err) == (0, expected, "Valid; nothing was written\n")
    assert len(history("user=undone")) == 2
    done = run("revert", "--change", change, "--yes", "--reason", "undo", "--ticket", "T-1")
    assert (done.code, sorted(rows(done)), done.err) == (0, expected, "Reverted 2 keys of 1 entity\n")
    newest = history("user=undone")[0]
    assert (newest["reason"], newest["ticket"], newest["reverts"]) == ("undo", "T-1", [change])
    again = run("revert", "--change", change, "--yes")
    assert (again.code, again.out) == (0, "")
    assert "already have their earlier values" in again.err
    printed = json.loads(run("revert", "--change", newest["changeId"], "--yes", "--json").out)
    assert sorted(each["facet"] for each in printed["results"]) == ["client-configs", "client-quotas"]
    assert printed["failed"] == 0


def test_later_changes_are_named_and_the_rest_is_reverted() -> None:
    first = put("user=later", f"{QUOTA}=1", "acks=all")
    late = put("user=later", f"{QUOTA}=2")
    refused = run("revert", "--change", first, "--yes")
    assert (refused.code, refused.out) == (1, "")
    assert late in refused.err
    assert "Nothing was written" in refused.err
    assert rows(run("get", "user=later")) == [[QUOTA, "2"], ["acks", "all"]]
    one = run("revert", "--change", first, "--yes", "--key", "acks")
    assert (one.code, rows(one)) == (0, [["user=later", "acks", "all", "(not", "set)"]])
    forced = run("revert", "--change", first, "--yes", "--force")
    assert forced.code == 0
    assert run("get", "user=later").code == 1


def test_the_changes_of_a_request_and_of_a_principal_are_reverted(service: Service) -> None:
    for user in ("asked-a", "asked-b"):
        put(f"user={user}", f"{QUOTA}=1")
    request = history("user=asked-a")[0]["requestId"]
    done = run("revert", "--request-id", request, "--yes")
    assert (done.code, rows(done)) == (0, [["user=asked-a", QUOTA, "1", "(not", "set)"]])
    shown = run("revert", "--principal", "User:admin", "--since", "1h", "--validate-only")
    assert ["user=asked-b", QUOTA, "1", "(not", "set)"] in rows(shown)
    none = run("revert", "--principal", "User:nobody", "--since", "1h", "--yes")
    assert (none.code, none.out) == (1, "")
    assert "User:nobody" in none.err
    assert service.url not in none.err


def test_an_entity_goes_back_with_all_its_facets(service: Service) -> None:
    service.wait_recorded()
    put("user=back", f"{QUOTA}=1", "acks=all")
    moment = str(history("user=back")[0]["revision"])
    put("user=back", f"{QUOTA}=2")
    put("user=back", "acks=1", "session.timeout.ms=20000")
    done = run("revert", "user=back", "--to", moment, "--yes")
    assert (done.code, done.err) == (0, "Reverted 3 keys of 1 entity\n")
    assert rows(run("get", "user=back")) == [[QUOTA, "1"], ["acks", "all"]]
    run("delete", "user=back", "acks")
    one_facet = run("revert", "user=back", "--to", moment, "--yes")
    assert (one_facet.code, one_facet.err) == (0, "Reverted 1 key of 1 entity\n")
    unknown = run("revert", "user=back", "--to", "1", "--yes")
    assert (unknown.code, unknown.out) == (1, "")
    assert "is complete from revision" in unknown.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "Give ENTITY with --to, --change"),
        ("user=a", "--to is required with ENTITY"),
        ("01a229ed-e54b-7307-a883-6d025f84696b", "For a change: --change 01a229ed-e54b-7307-a883-6d025f84696b."),
        ("--change 1 --request-id 2", "Give ENTITY with --to, --change"),
        ("--change nonsense --yes", "--change nonsense is not a valid change id"),
        ("--principal User:x", "--principal requires --since"),
        ("--request-id x --since 1h", "--principal requires --since"),
        ("--request-id x --to 1h", "--to is required with ENTITY"),
        ("--principal User:x --since yesterday --yes", "--since yesterday is not a valid time"),
        ("--principal User:x --since 1h --until later --yes", "--until later is not a valid time"),
        ("user=a --to 1h --key acks --yes", "--key is for changes"),
        ("usr=a --to 1h --yes", "is not a valid entity"),
        ("--request-id x", "Use --yes"),
        ("--request-id x --json", "Use --yes"),
    ],
)
def test_what_can_not_be_meant_is_refused(line: str, said: str) -> None:
    found = run("revert", *line.split())
    assert (found.code, found.out) == (2, "")
    assert said in found.err


def asked(words: list[str], answer: Callable[[], bytes]) -> tuple[int, bytes]:
    """Run ``revert`` on a terminal, answer its question, and return the exit code and what it printed."""
    pid, terminal = pty.fork()
    if pid == 0:  # the process on the terminal
        os.execv(sys.executable, [sys.executable, "-m", "confplane", "revert", *words])  # noqa: S606 - no shell
    shown = b""
    while b"[y/N]: " not in shown:
        shown += os.read(terminal, 1024)
    os.write(terminal, answer())
    with contextlib.suppress(OSError):  # Linux: nobody has the other end
        while True:
            shown += os.read(terminal, 1024)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), shown


def test_changes_after_the_preview_are_not_reverted() -> None:
    since = datetime.now(UTC).isoformat()
    put("user=previewed", f"{QUOTA}=1")

    def confirm() -> bytes:
        put("user=after-the-preview", f"{QUOTA}=1")
        return b"y\n"

    code, shown = asked(["--principal", "User:admin", "--since", since], confirm)
    assert (code, b"Reverted 1 key of 1 entity" in shown) == (0, True), shown
    assert run("get", "user=previewed").code == 1
    assert rows(run("get", "user=after-the-preview")) == [[QUOTA, "1"]]


@pytest.mark.parametrize(("typed", "code"), [(b"n\n", 1), (b"\n", 1), (b"y\n", 0)])
def test_a_person_on_a_terminal_is_asked(typed: bytes, code: int) -> None:
    change = put("user=terminal", f"{QUOTA}={1 + len(history('user=terminal'))}")
    before = rows(run("get", "user=terminal"))
    ended, shown = asked(["--change", change], lambda: typed)
    assert ended == code, shown
    assert b"Revert 1 key of 1 entity?" in shown
    assert QUOTA.encode() in shown
    assert (rows(run("get", "user=terminal")) == before) is (code == 1)
