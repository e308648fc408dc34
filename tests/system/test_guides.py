"""The commands of the guides on Kafka's configs, history, temporary changes and change requests, run as printed."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.support import servers
from tests.support.documents import blocks, run
from tests.support.processes import ROOT, path_with_confplane
from tests.support.service import ServiceInThread

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.servers import Database
    from tests.support.service import Service


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
    api = re.findall(r"^api\(\) \{.*$", (ROOT / "docs/index.md").read_text(), re.MULTILINE)
    # They list all quotas: of a service of their own.
    with ServiceInThread(tmp_path, connect=chroot, dsn=migrated.service_dsn) as service:
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


def test_the_manifests_of_the_guide_and_its_pipelines(zookeeper: ZooKeeper, migrated: Database, tmp_path: Path) -> None:
    guide = (ROOT / "docs/automation.md").read_text().partition("\n## Terraform and OpenTofu\n")[0]
    connect = servers.make_chroot(zookeeper.hosts)
    with ServiceInThread(tmp_path / "service", connect=connect, dsn=migrated.service_dsn) as service:
        stubs = tmp_path / "stubs"
        stubs.mkdir()
        for name in ("gh", "curl"):
            (stubs / name).write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/{name}.log\n')
            (stubs / name).chmod(0o755)
        path = f"{stubs}{os.pathsep}{path_with_confplane(tmp_path / 'bin')}"
        environment = os.environ | {"PATH": path, "CONFPLANE_URL": service.url, "CONFPLANE_TOKEN": service.token}
        written, *printed = run(blocks(guide), tmp_path, environment)
        assert written == ""
        assert [*map(_settled, printed)] == [_settled(each.strip()) for each in blocks(guide, "text")]

        manifest = tmp_path / "manifests" / "orders.yaml"
        github, gitlab = map(yaml.safe_load, blocks(guide, "yaml"))
        tokens = {"CONFPLANE_READ_TOKEN": service.token, "CONFPLANE_WRITE_TOKEN": service.token, "CI_API_V4_URL": "api"}
        tokens |= {"CI_PROJECT_ID": "1", "CI_MERGE_REQUEST_IID": "2", "GITLAB_TOKEN": "t", "CI_COMMIT_SHA": "abc"}
        environment |= {**tokens, "PULL_REQUEST": "7", "COMMIT": "abc"}
        for number, jobs in enumerate((github["jobs"], gitlab)):
            manifest.write_text(re.sub("8640000[0-9]", f"8640000{number + 1}", manifest.read_text()))
            for job in ("plan", "apply"):
                steps = (
                    [step["run"] for step in jobs[job]["steps"] if "run" in step]
                    if number == 0
                    else jobs[job]["script"]
                )
                run(["\n".join(step for step in steps if not step.startswith("pip "))], tmp_path, environment)
                if job == "plan":
                    assert "1 to update" in (tmp_path / "plan.txt").read_text()
                    assert f"+retention.ms: 8640000{number + 1}" in (tmp_path / "comment.md").read_text().splitlines()
        assert run(["confplane plan manifests"], tmp_path, environment)[0].endswith("2 unchanged")
        assert (tmp_path / "gh.log").read_text() == "pr comment 7 --body-file comment.md\n"
        assert "api/projects/1/merge_requests/2/notes" in (tmp_path / "curl.log").read_text()
        manifest.write_text("nothing of it")
        done = [step["run"] for step in github["jobs"]["plan"]["steps"] if "plan.txt" in step.get("run", "")]
        with pytest.raises(AssertionError):
            run(done, tmp_path, environment)
        assert "line 1, column 1" in (tmp_path / "comment.md").read_text()
        # Arguments that are not valid have another exit code.
        manifest.parent.rename(tmp_path / "configs")
        with pytest.raises(AssertionError):
            run(done, tmp_path, environment)
        assert "no file 'manifests'" in (tmp_path / "comment.md").read_text()


def _settled(text: str) -> list[str]:
    """Return lines without the ids, times and revisions of a run, and the widths of their columns."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "TIME", text)
    text = re.sub(r"[0-9a-f]{40}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=revision )\d+", "ID", text)
    return [re.sub(r"  +", "  ", line) for line in text.splitlines()]


def test_the_commands_for_temporary_changes(chroot: str, migrated: Database, tmp_path: Path) -> None:
    api = re.findall(r"^api\(\) \{.*$", (ROOT / "docs/index.md").read_text(), re.MULTILINE)
    with ServiceInThread(tmp_path, connect=chroot, dsn=migrated.service_dsn) as service:
        environment = os.environ | {"TOKEN": service.token, "CONFPLANE": f"{service.url}/v1/clusters/default"}
        shell = blocks((ROOT / "docs/temporary-changes.md").read_text())
        [printed] = run(["\n".join([*api, *shell])], tmp_path, environment)
    answers = [json.loads(each) for each in re.findall(r"^\{.*\}$", printed, re.MULTILINE)]
    assert [item["state"] for answer in answers for item in answer.get("items", ())] == ["active", "ended"]


def test_the_commands_for_change_requests(chroot: str, migrated: Database, tmp_path: Path) -> None:
    with ServiceInThread(tmp_path / "service", connect=chroot, dsn=migrated.service_dsn) as service:
        (tmp_path / "admin-token").write_text(service.token)
        path = path_with_confplane(tmp_path / "bin")
        environment = os.environ | {
            "PATH": path,
            "CONFPLANE_URL": service.url,
            "CONFPLANE_TOKEN_FILE": str(tmp_path / "admin-token"),
        }
        _, printed = run(blocks((ROOT / "docs/change-requests.md").read_text()), tmp_path, environment)
    assert "Proposed by User:dev: more load" in printed
    assert re.search(r"producer_byte_rate +1048576", printed)
