"""The tests that docs/security.md names are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = re.compile(r"`(test_\w+)`")


def test_every_threat_has_tests_that_are_there() -> None:
    text = (ROOT / "docs/security.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| threat")]
    named = set(NAMES.findall(text))
    assert len(named) > 20
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    assert not named - defined
    assert [row for row in rows if not NAMES.search(row)] == [row for row in rows if "`make audit`" in row]
