"""The commands of docs/kafka-configs.md, run as they are printed, print what the guide shows."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from tests.support.processes import ROOT, path_with_confplane

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Service

GUIDE = (ROOT / "docs/kafka-configs.md").read_text()


def test_the_commands_of_the_guide_print_what_it_shows(service: Service, tmp_path: Path) -> None:
    settings, *blocks = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    shown = re.findall(r"```text\n(.*?)```", GUIDE, re.DOTALL)
    (tmp_path / ".confplane").mkdir()
    (tmp_path / ".confplane" / "admin-token").write_text(service.token)
    script = [settings.replace("http://127.0.0.1:8080", service.url), *blocks]
    done = subprocess.run(
        ["bash", "-c", "set -eu\nexec 2>&1\n" + "echo '#'\n".join(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PATH": path_with_confplane(tmp_path / "bin")},
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.split("#\n")[1:] == shown
