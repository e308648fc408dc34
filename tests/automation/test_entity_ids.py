"""Entity ids in the variables of the module: the plan refuses those that the API would refuse."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.automation import tofu
from tests.support import tools

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("variable", "value", "accepted", "refused"),
    [
        (
            "client_quotas",
            {"producer_byte_rate": 1},
            ["user=alice,client-id=billing", "user", "user,client-id", "client-id=a~20b", "ip=10.0.0.1", "user=..."],
            ["user=", "client-id=app,user", "ip=::1", "ip=~3A~3A1", "user=a b", "user=..", "topic=a", "user=a,"],
        ),
        ("client_configs", {"acks": "1"}, ["user=alice", "user=a,client-id"], ["client-id=a", "user=", "users=a"]),
        (
            "configs",
            {"a": "1"},
            ["topic=orders", "broker=0", "broker", "group=billing", "client-metrics=all", "topic=..."],
            ["broker=00", "topic=", "topic=..", "topic", "group", "user=a", "broker=-1"],
        ),
    ],
)
def test_a_plan_refuses_other_ids(
    tmp_path: Path, variable: str, value: dict[str, object], accepted: list[str], refused: list[str]
) -> None:
    tool = tools.obtain(tofu.program, fetched=False)
    shutil.copy(tofu.MODULE / "variables.tf", tmp_path)  # without the resources, it needs no provider

    def planned(ids: list[str]) -> tuple[int, str]:
        (tmp_path / "terraform.tfvars.json").write_text(
            json.dumps({"cluster": "default", variable: dict.fromkeys(ids, value)})
        )
        done = subprocess.run(
            [tool, "plan", "-no-color", "-input=false"],
            cwd=tmp_path,
            env={**os.environ, "CHECKPOINT_DISABLE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, " ".join(done.stderr.split())

    assert planned(accepted)[0] == 0
    for each in refused:
        code, said = planned([each])
        assert (code, "Each key must be the entity id" in said.replace("│ ", "")) == (1, True), (each, said)
