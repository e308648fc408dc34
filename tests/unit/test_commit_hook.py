"""The hook that checks the subjects of commits, on good and bad messages, and as Git runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
HOOK: Final = ROOT / ".githooks" / "commit-msg"


def checked(message: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the hook on a message."""
    path = directory / "COMMIT_EDITMSG"
    path.write_text(message, "utf-8")
    return subprocess.run(
        [sys.executable, "-I", "-S", HOOK, path], capture_output=True, encoding="utf-8", check=False, timeout=120
    )


@pytest.mark.parametrize(
    "message",
    [
        "store: reload the mirror after a session change",
        "tests: isolate the unreadable-layout case\n\nThe body says why; it may be long.\nIt ends with a period.\n",
        "ci: pin kazoo 2.11",
        "rollups/jobs: need one shuffle less",
        "audit-trail: process rows in batches",
        "kafka4: focus on pending keys",
        "client: always close the connection",
        "api: embed the specification",
        "docs: `make test` needs no network",
        "domain: re-encode names with a;b in them",
        "docs: " + "é" * 66,
        "\n\n# a comment of Git\ndocs: add a glossary\n# another\n",
        "docs: add a glossary\n# Please enter the commit message for your changes.\n#\n# On branch main\n",
        "Merge branch 'main' into other; its subject is of any form and of any length, and it may end with a period.",
        'Revert "Added something."',
        'Reapply "Added something."',
        "fixup! Added something.",
        "squash! Added something.",
        "amend! Added something.",
        "",
        "# comments alone\n",
    ],
)
def test_good_messages_pass(message: str, tmp_path: Path) -> None:
    run = checked(message, tmp_path)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("docs: " + "é" * 67, "has 73 characters"),
        ("Add a glossary", "has no area"),
        ("Docs: add a glossary", "has no area"),
        ("docs:add a glossary", "has no area"),
        ("docs: ", "has no area"),
        ("docs, tests: add a glossary", "has no area"),
        ("docs: glossary: add terms", "two prefixes"),
        ("docs: add a glossary.", "ends with a period"),
        ("docs: add a glossary; tests: check it", "semicolon joins two clauses"),
        ("docs: add a glossary and check;", "semicolon joins two clauses"),
        ("docs: add a glossary\nIts terms are short.", "after the subject is not empty"),
        ("docs: added a glossary", '"added" is not an imperative'),
        ("docs: Adds a glossary", '"Adds" is not an imperative'),
        ("docs: adding a glossary", '"adding" is not an imperative'),
        ("store: re-reads the mirror", '"re-reads" is not an imperative'),
        ("store: wrote the mirror", '"wrote" is not an imperative'),
        ("store: is faster", '"is" is not an imperative'),
        ("tests: the layout is read", '"the" is not an imperative'),
        ("cli: Kafka's words are shown", '"Kafka\'s" is not an imperative'),
    ],
)
def test_bad_messages_are_refused_with_the_remedy(message: str, problem: str, tmp_path: Path) -> None:
    run = checked(message, tmp_path)
    assert run.returncode == 1
    assert problem in run.stderr
    assert "git commit -e -F" in run.stderr
    assert run.stderr.count("\n  - ") == 1


def test_all_problems_are_listed(tmp_path: Path) -> None:
    run = checked("Added a glossary; " + "x" * 60 + ".", tmp_path)
    assert run.stderr.count("\n  - ") == 4


def test_git_runs_the_hook_once_it_is_enabled(tmp_path: Path) -> None:
    identity = {f"GIT_{role}_{part}": "a@b" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **identity}

    def git(*arguments: str | Path) -> int:
        return subprocess.run(["git", *arguments], cwd=tmp_path, env=environment, check=False, timeout=120).returncode

    assert git("init", "--quiet") == 0
    assert git("config", "core.hooksPath", HOOK.parent) == 0
    assert git("commit", "--quiet", "--allow-empty", "--message", "docs: added a glossary") == 1
    assert git("commit", "--quiet", "--allow-empty", "--message", "docs: add a glossary") == 0
    assert git("commit", "--quiet", "--allow-empty", "--message", "fixup! docs: add a glossary") == 0
