"""The commands of docs/kafka-configs.md and docs/history.md, run as they are printed."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from tests.support.documents import blocks, run
from tests.support.processes import ROOT, path_with_confplane
from tests.support.service import Service

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers import Database


def test_the_commands_for_configs_print_what_the_guide_shows(service: Service, tmp_path: Path) -> None:
    guide = (ROOT / "docs/kafka-configs.md").read_text()
    settings, *commands = blocks(guide)
    (tmp_path / ".confplane").mkdir()
    (tmp_path / ".confplane" / "admin-token").write_text(service.token)
    settings = f"exec 2>&1\n{settings.replace('http://127.0.0.1:8080', service.url)}"
    environment = os.environ | {"PATH": path_with_confplane(tmp_path / "bin")}
    printed = run([settings, *commands], tmp_path, environment)
    assert printed == ["", *(each.strip() for each in blocks(guide, "text"))]


def test_the_commands_for_the_past_and_for_reverts(chroot: str, migrated: Database, tmp_path: Path) -> None:
    api = re.findall(r"^api\(\) \{.*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    # They list all quotas: of a service of their own.
    with Service(tmp_path, connect=chroot, dsn=migrated.service_dsn) as service:
        service.wait_recorded()
        environment = os.environ | {"CONFPLANE": f"{service.url}/v1/clusters/default", "TOKEN": service.token}
        printed = run(["\n".join([*api, *blocks((ROOT / "docs/history.md").read_text())])], tmp_path, environment)
    answers = map(json.loads, filter(None, printed[0].splitlines()))
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
