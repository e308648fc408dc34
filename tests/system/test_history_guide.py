"""The commands of docs/history.md, run as they are printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

from tests.support.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Service

GUIDE = (ROOT / "docs/history.md").read_text()
API = re.findall(r"^api\(\) \{.*$", (ROOT / "README.md").read_text(), re.MULTILINE)


def test_the_commands_of_the_guide(service: Service, tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    service.wait_recorded()
    done = subprocess.run(
        ["bash", "-c", "\n".join(["set -eu", *API, *blocks])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"CONFPLANE": f"{service.url}/v1/clusters/default", "TOKEN": service.token},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers = map(json.loads, filter(None, done.stdout.splitlines()))
    first, second, history, single, listed, diff, shown, undone, back = answers
    assert first["quotas"] == single["quotas"] == {"producer_byte_rate": 1048576}
    assert [(item["reason"], item["changes"][0]["after"]) for item in history["items"]] == [
        ("more", second["quotas"]["producer_byte_rate"]),
        ("trial", 1048576),
    ]
    assert single["at"]["exact"] is True
    assert listed["items"] == [single]
    assert diff["changes"] == [{"key": "producer_byte_rate", "before": 1048576, "after": 2097152}]
    assert shown["results"][0]["diff"] == undone["results"][0]["diff"]
    assert [(each["key"], each["before"], each["after"]) for each in undone["results"][0]["diff"]] == [
        ("producer_byte_rate", 5, 2097152),
        ("request_percentage", 1, None),
    ]
    assert (shown["results"][0]["changeId"], undone["failed"]) == (None, 0)
    assert back["diff"] == [{"key": "producer_byte_rate", "before": 2097152, "after": 1048576}]
    assert back["reverts"][-1] == undone["results"][0]["changeId"]
