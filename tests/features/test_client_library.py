"""The client library against a service: the examples of docs/python.md.

The request of each method is in tests/unit/client/test_operations.py; commands and many tests send them to a service.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Service

GUIDE = (ROOT / "docs/python.md").read_text()


def test_the_examples_of_the_guide_print_what_it_shows(service: Service, tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    shown = re.findall(r"```text\n(.*?)```", GUIDE, re.DOTALL)
    assert len(examples) == len(shown) > 0
    (tmp_path / ".confplane").mkdir()
    (tmp_path / ".confplane" / "admin-token").write_text(service.token)
    script = "print('#')\n".join(examples).replace("http://127.0.0.1:8080", service.url)
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "app")},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split("#\n") == shown
