"""Subjects and rules against Java's X500Principal and Kafka's SslPrincipalMapper themselves."""

from __future__ import annotations

import shutil
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from confplane.crypto.certificates import subject_of
from confplane.security.mapping import PrincipalMapper, UnmappedError
from tests.support import tools
from tests.support.certificates import NO_RULES, RULES, SUBJECTS, Authority
from tests.support.java import quick_java

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.interop

NAMES = (
    *SUBJECTS,
    "CN=Duke,OU=ServiceUsers,O=Org,C=US",
    "CN=Duke,OU=SME,O=mycp,C=US",
    "cn=duke",
    "CN=aaa",
    "CN=İß,O=ΑΣ",
)


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[tuple[str, ...]]], list[str | None]]:
    class_path = tools.obtain(tools.kafka_class_path).read_text()
    java = shutil.which("java")
    assert java is not None

    def asked(orders: list[tuple[str, ...]]) -> list[str | None]:
        """Return Java's answers; None for what it refuses."""
        file = tmp_path_factory.mktemp("orders") / "orders"
        file.write_text("".join("\t".join(order) + "\n" for order in orders))
        source = Path(__file__).with_name("Principals.java")
        done = subprocess.run(
            [java, *quick_java(), "-cp", class_path, str(source), str(file)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        answers = [line.split("\t") for line in done.stdout.splitlines()]
        assert len(answers) == len(orders), done.stdout + done.stderr
        return [b64decode(text).decode() if state == "ok" else None for state, text in answers]

    return asked


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def test_subjects_are_javas(ask: Callable[[list[tuple[str, ...]]], list[str | None]]) -> None:
    authority = Authority()
    contents = [authority.issue(subject)[0].public_bytes(Encoding.DER) for subject in SUBJECTS.values()]
    theirs = ask([("subject", b64encode(content).decode()) for content in contents])
    assert [subject_of(content) for content in contents] == theirs
    assert theirs == list(SUBJECTS)


def test_principals_are_kafkas(ask: Callable[[list[tuple[str, ...]]], list[str | None]]) -> None:
    cases = [(rules, subject) for rules in (*RULES, *NO_RULES) for subject in NAMES]
    theirs = ask([("map", encoded(rules), encoded(subject)) for rules, subject in cases])
    different = [(*case, ours(*case), their) for case, their in zip(cases, theirs, strict=True) if ours(*case) != their]
    assert different == []
    assert sum(their is not None for their in theirs) > len(cases) // 4


def ours(rules: str, subject: str) -> str | None:
    try:
        return PrincipalMapper(rules).name(subject)
    except (UnmappedError, ValueError):
        return None
