"""Completions of the command line, as a real bash asks for them, on a real service."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.commands import run_here
from tests.support.processes import path_with_confplane

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.service import Service

_SCRIPT = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_confplane_completion confplane
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def complete(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Completes words, of which bash makes a word of each ``=``, on a service where some entities have configs."""
    directory = tmp_path_factory.mktemp("person")
    (directory / "token").write_text(service.token)
    urls = {"prod": service.url, "portal": "http://127.0.0.1:1"}
    lines = [f"  {name}: {{url: '{url}', token_file: {directory / 'token'}}}" for name, url in urls.items()]
    (directory / "profiles.yaml").write_text("\n".join(["current: prod", "profiles:", *lines]))

    environment = os.environ | {
        "CONFPLANE_PROFILES": str(directory / "profiles.yaml"),
        "PATH": path_with_confplane(directory / "bin"),
    }
    for line in ("user=alice producer_byte_rate=1 acks=all", "user=albert acks=all", "user=alice,client-id=app acks=1"):
        assert run_here("set", *line.split(), environment=environment).code == 0

    script = directory / "completion"
    # The command looks for the shell among its parents, so bash stays.
    showing = ["bash", "-c", "confplane --show-completion bash || exit"]
    script.write_bytes(subprocess.run(showing, env=environment, check=True, capture_output=True).stdout)

    def completed(*words: str) -> list[str]:
        command = ["bash", "-c", _SCRIPT, "bash", str(script), "confplane", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return sorted(done.stdout.split())

    return completed


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("get client", ["client-id=", "client-metrics="]),
        ("get us", ["user=albert", "user=alice"]),
        ("get user =", ["albert", "alice"]),
        ("get user = ali", ["alice"]),
        ("history user = alice,client-id = a", ["app"]),
        ("delete user = alice a", ["acks"]),
        ("set user = alice producer", ["producer_byte_rate="]),
        ("set topic = any retention.m", ["retention.ms="]),
        ("get --profile p", ["portal", "prod"]),
        ("profiles use po", ["portal"]),
        ("audit --cluster d", ["default"]),
        ("get --profile portal user = al", []),
        ("get nothing=", []),
    ],
)
def test_the_shell_completes(complete: Callable[..., list[str]], words: str, found: list[str]) -> None:
    assert complete(*words.split()) == found
