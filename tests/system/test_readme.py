"""The commands of the README and of the first page of the documentation, run as they are printed.

They run against what `make run` starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support import documents
from tests.support.ports import reserved_port
from tests.support.processes import path_with_confplane
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
FIRST_PAGE = (ROOT / "docs" / "index.md").read_text()


def commands(document: str, heading: str) -> list[str]:
    """The shell blocks of one section."""
    return documents.blocks(document.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0])


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    with started(tmp_path_factory.mktemp("first-page") / ".confplane") as running:
        yield running


@contextlib.contextmanager
def started(data: Path) -> Iterator[tuple[Path, int]]:
    """Start the servers of `make run`, and yield their data and port."""
    port = reserved_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "confplane", "dev", "--data-dir", str(data), "--port", str(port)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 120
        while True:
            assert process.poll() is None
            assert time.monotonic() < end
            try:
                if httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        yield data, port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


def run(blocks: list[str], stack: tuple[Path, int], directory: Path) -> list[str]:
    """Run shell blocks in one shell, and return what each printed."""
    data, port = stack
    (directory / ".confplane").symlink_to(data)
    here = {
        "127.0.0.1:8080": f"127.0.0.1:{port}",
        ".venv/bin/python": sys.executable,
        ". .venv/bin/activate\n": "",
    }
    for there, place in here.items():
        blocks = [each.replace(there, place) for each in blocks]
    environment = {"PATH": path_with_confplane(directory / "bin"), "HOME": str(directory)}
    return documents.run(blocks, directory, os.environ | environment)


def test_the_readme(tmp_path: Path) -> None:
    # Its last command reverts all changes of the administrator.
    with started(tmp_path / "data") as running:
        [printed] = run(commands(README, "Five minutes with it"), running, tmp_path)
    rows = [line.split() for line in printed.splitlines()]
    assert ["producer_byte_rate", "1048576", "2097152"] in rows
    assert ["acks", "all", "user=alice"] in rows
    assert ["user=alice", "producer_byte_rate", "2097152", "(not", "set)"] in rows


def test_the_readme_is_one_screen() -> None:
    assert len(README.splitlines()) <= 60


def test_the_five_minutes(stack: tuple[Path, int], tmp_path: Path) -> None:
    blocks = commands(FIRST_PAGE, "Five minutes with it")
    _, altered, effective, quotas, stored, trail = run(blocks, stack, tmp_path)
    assert json.loads(altered)["failed"] == 0
    by_key = {item["key"]: item for item in json.loads(effective)["configs"]}
    assert by_key["session.timeout.ms"]["value"] == "11000"
    assert by_key["acks"]["source"] == "user=alice"
    assert [json.loads(line)["quotas"]["producer_byte_rate"] for line in quotas.splitlines()] == [1048576, 2097152]
    assert json.loads(stored) == {
        "version": 1,
        "config": {"acks": "all", "session.timeout.ms": "20000", "producer_byte_rate": "2097152"},
    }
    assert [item["outcome"] for item in json.loads(trail)["items"]] == ["committed"] * 3


def test_topics_and_brokers(stack: tuple[Path, int], tmp_path: Path) -> None:
    blocks = [*commands(FIRST_PAGE, "Five minutes with it")[:1], *commands(FIRST_PAGE, "Topics and brokers")]
    _, altered, described, put = run(blocks, stack, tmp_path)
    assert json.loads(altered)["failed"] == 0
    (config,) = json.loads(described)["results"][0]["configs"]
    assert (config["value"], config["configSource"]) == ("86400000", "DYNAMIC_TOPIC_CONFIG")
    assert [item["value"] for item in config["synonyms"]] == ["86400000", "604800000", "168"]
    assert json.loads(put) == {"id": "broker=0", "configs": {"background.threads": "12"}}


@pytest.mark.parametrize("name", ["CN=a b", "CN=Alice, O=Acme/x y*é", "plain.name_-1", "a~b(c)!'", "日本"])
def test_the_recipes_for_names(name: str) -> None:
    from urllib.parse import quote  # noqa: PLC0415 - what the recipe needs

    from confplane.domain.entities import Entity  # noqa: PLC0415 - beside its twin

    wanted = Entity.of(user=name).id.removeprefix("user=")
    names = (ROOT / "docs" / "names.md").read_text()
    rows = dict(re.findall(r"^\| (Python|shell|JavaScript|HCL) \| `(.*?)`", names, re.MULTILINE))
    assert eval(rows["Python"], {"quote": quote, "name": name}) == wanted  # noqa: S307 - our own page
    for program, language, arguments in (
        ("bash", "shell", ["-c", rows["shell"].replace("\\|", "|")]),
        ("node", "JavaScript", ["-e", f"const name = process.env.name; process.stdout.write({rows['JavaScript']})"]),
    ):
        needed = "jq" if language == "shell" else program
        if subprocess.run(["which", needed], capture_output=True, check=False).returncode:
            continue
        done = subprocess.run(
            [program, *arguments], env={**os.environ, "name": name}, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == wanted, language
