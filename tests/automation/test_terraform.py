"""The module of ``deploy/terraform`` in real runs, on a real service.

``CONFPLANE_RECORD=1`` writes the exchanges of the run for :mod:`tests.automation.test_exchanges`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Final

import httpx
import pytest

from tests.automation import exchanges, tofu
from tests.support import tools

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.service import Service

API: Final = "/v1/clusters/default"
ODD: Final = "user=CN~3Dbilling~2CO~3DExample~20Inc"
PASSWORD: Final = "listener.name.internal.ssl.keystore.password"
SECOND: Final = f"""
terraform {{
  required_providers {{
    restapi = {{
      source = "Mastercard/restapi"
    }}
  }}
}}
variable "url" {{}}
provider "restapi" {{
  uri                  = var.url
  write_returns_object = true
}}
module "confplane" {{
  source         = "../confplane"
  cluster        = "default"
  client_configs = {{ "{ODD}" = {{ "acks" = "1" }} }}
  configs        = {{ "broker=0" = {{ "{PASSWORD}" = null, "log.cleaner.threads" = "2" }} }}
}}
import {{
  to = module.confplane.restapi_object.configs["broker=0"]
  id = "{API}/configs/broker=0"
}}
"""
QUOTAS: Final = """
terraform {
  required_providers {
    restapi = {
      source = "Mastercard/restapi"
    }
  }
}
variable "url" {}
variable "count_of_users" {}
provider "restapi" {
  uri                  = var.url
  write_returns_object = true
}
module "confplane" {
  source        = "../confplane"
  cluster       = "default"
  client_quotas = { for i in range(var.count_of_users) : "user=u${i}" => { producer_byte_rate = 1000 + i } }
}
"""


def workspace(tmp_path: Path, name: str, url: str, token: str) -> tofu.Workspace:
    tool, restapi = tools.obtain(tofu.program, fetched=False), tools.obtain(tofu.provider, fetched=False)
    shutil.copytree(tofu.MODULE, tmp_path / "confplane", dirs_exist_ok=True)
    return tofu.Workspace(tmp_path, name, tool=tool, restapi=restapi, url=url, token=token)


def test_the_life_of_two_workspaces(service: Service, tmp_path: Path) -> None:
    with exchanges.recorder(service.url, service.token) as record:
        first = workspace(tmp_path, "first", record.url, service.token)
        second = workspace(tmp_path, "second", record.url, service.token)
        shutil.copytree(tofu.EXAMPLE, first.directory)
        second.directory.mkdir()
        (second.directory / "main.tf").write_text(SECOND)

        record.begin("apply")
        first.run("init", "-input=false")
        assert "9 added, 0 changed, 0 destroyed" in first.apply()
        record.begin("apply again")
        assert "No changes" in first.changes(expected=False)

        record.begin("change")
        main = first.directory / "main.tf"
        main.write_text(main.read_text().replace("10485760", "20971520"))
        assert "0 added, 1 changed, 0 destroyed" in first.apply()

        record.begin("an outside change")
        outside = {"quotas": {"producer_byte_rate": 1, "request_percentage": 50.5}}
        assert record.pass_on("PUT", f"{API}/client-quotas/user=alice", outside).status == 200
        assert "1 to change" in first.changes(expected=True)
        assert "1 changed" in first.apply()

        record.begin("a secret, set past Terraform")
        given = {"configs": {PASSWORD: "hidden-1", "log.cleaner.threads": "2"}}
        assert record.pass_on("PUT", f"{API}/configs/broker=0", given).status == 200
        record.begin("another workspace, with an import and a secret")
        second.run("init", "-input=false")
        plan = second.changes(expected=True)
        assert "1 to import, 1 to add, 1 to change" in plan, plan
        assert "1 imported, 1 added, 1 changed" in second.apply()
        assert "No changes" in second.changes(expected=False)
        main = second.directory / "main.tf"
        main.write_text(main.read_text().replace('threads" = "2"', 'threads" = "1"'))
        assert "0 added, 1 changed" in second.apply()
        assert "No changes" in second.changes(expected=False)
        assert "hidden-1" not in (second.directory / "terraform.tfstate").read_text()

        record.begin("the other workspace is gone")
        assert "2 destroyed" in second.run("destroy", "-auto-approve", "-input=false")
        assert "No changes" in first.changes(expected=False)

        record.begin("an outside removal")
        assert record.pass_on("DELETE", f"{API}/client-quotas/client-id=reports", None).status == 200
        assert "1 to change" in first.changes(expected=True)
        assert "1 changed" in first.apply()

        record.begin("destroy, where somebody was quicker")
        assert record.pass_on("DELETE", f"{API}/client-quotas/client-id=reports", None).status == 200
        assert "9 destroyed" in first.run("destroy", "-auto-approve", "-input=false")
        assert record.pass_on("GET", f"{API}/client-quotas", None).answer["items"] == []

    if os.environ.get("CONFPLANE_RECORD") == "1":
        exchanges.FILE.write_text(json.dumps(record.as_json(), indent=1, ensure_ascii=False) + "\n")
    recorded = json.loads(exchanges.FILE.read_text())
    assert exchanges.in_one_order(record.as_json()) == exchanges.in_one_order(recorded)


@pytest.mark.parametrize("size", [20, pytest.param(1000, marks=pytest.mark.long)])
def test_many_quotas_are_refreshed(service: Service, tmp_path: Path, size: int) -> None:
    many = workspace(tmp_path, "many", service.url, service.token)
    many.directory.mkdir()
    (many.directory / "main.tf").write_text(QUOTAS)
    (many.directory / "terraform.tfvars").write_text(f"count_of_users = {size}\n")
    many.run("init", "-input=false")
    assert f"{size} added" in many.apply()
    begun = time.perf_counter()
    assert "No changes" in many.changes(expected=False)
    refreshed_s = time.perf_counter() - begun
    with httpx.Client(
        base_url=service.url, headers={"Authorization": f"Bearer {service.token}"}, trust_env=False
    ) as http:
        begun = time.perf_counter()
        for number in range(size):
            assert http.get(f"{API}/client-quotas/user=u{number}").status_code == 200
        got_s = time.perf_counter() - begun
    sys.stdout.write(f"{size} quotas: plan {refreshed_s:.2f} s, as many GETs on one connection {got_s:.2f} s\n")
