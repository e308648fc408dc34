"""``confplane plan``, ``apply`` and ``export --format manifest`` on a real service with two clusters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from tests.support import odd_configs, servers
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kazoo.client import KazooClient

    from confplane.devstack.zookeeper import ZooKeeper
    from tests.support.commands import Said
    from tests.support.service import Service

HEAD: Final = "apiVersion: confplane/v1\nkind: Configs\n"
TOPIC: Final = "  - id: topic=file-a\n    configs:\n      retention.ms: '1000'\n"
USER: Final = "  - id: user=file-a\n    quotas: {producer_byte_rate: 5}\n    clientConfigs: {acks: all}\n"


@pytest.fixture(scope="module")
def service_options(
    zookeeper: ZooKeeper,
    module_chroot: str,
    copy_chroot: str,
    copy: KazooClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    odd_chroot = servers.make_chroot(zookeeper.hosts)
    for odd in servers.raw_client(odd_chroot):
        odd_configs.write(odd)
    odd_configs.write_topics(copy)
    secret = tmp_path_factory.mktemp("secrets") / "encoder"
    secret.write_text("an encoder secret")
    clusters = {
        "default": {"zookeeper": module_chroot, "password_encoder": {"secret_file": str(secret)}},
        "copy": {"zookeeper": copy_chroot},
        "odd": {"zookeeper": odd_chroot},
    }
    return {"settings": {"CONFPLANE_CLUSTERS": json.dumps(clusters)}}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_directory_is_planned_applied_and_then_has_no_changes(run: Callable[..., Said], tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    (folder / "topics").mkdir(parents=True)
    (folder / "users.yaml").write_text(f"{HEAD}entities:\n{USER}")
    (folder / "topics" / "a.json").write_text(
        json.dumps(
            {
                "apiVersion": "confplane/v1",
                "kind": "Configs",
                "entities": [{"id": "topic=file-a", "configs": {"retention.ms": "1000"}}],
            }
        )
    )
    (folder / ".hidden.yaml").write_text("nothing: of it")
    (folder / "README.md").write_text("# configs")
    planned = run("plan", "manifests", "--out", "plan.json")
    assert planned.code == 2, planned
    assert "3 to create, 0 to update, 0 to delete, 0 unchanged" in planned.out
    done = run("apply", "manifests", "--plan", "plan.json", "--reason", "a trial")
    assert done.code == 0, done
    assert "Changes applied: 3" in done.out
    undo = done.out.partition("confplane revert --request-id ")[2].partition("`")[0]
    repeated = run("apply", "manifests", "--plan", "plan.json", "--reason", "a trial")
    assert repeated.code == 0, repeated
    assert repeated.out == (
        f"Changes applied: 0; `confplane revert --request-id {undo}` undoes the whole run, with its earlier attempts\n"
    )
    assert run("plan", "manifests", "--out", "empty.json").code == 0
    assert run("apply", "manifests", "--plan", "empty.json").out == "Changes applied: 0\n"
    again = run("apply", "manifests", "--yes")
    assert again.code == 0, again
    shown = run("get", "user=file-a", "--json")
    assert "producer_byte_rate" in shown.out

    (folder / "users.yaml").write_text(f"{HEAD}entities:\n  - id: user=file-a\n    clientConfigs: {{}}\n")
    planned = run("plan", "manifests")
    assert planned.code == 2
    assert "acks" in planned.out
    assert run("apply", "manifests", given="n\n").code == 1
    assert run("plan", "manifests").code == 2
    assert run("apply", "manifests", given="y\n").code == 0
    stale = run("apply", "manifests", "--plan", "plan.json")
    assert stale.code == 1
    assert "make a new plan" in stale.err


def test_prune_needs_a_scope_and_shows_what_it_deletes(run: Callable[..., Said], tmp_path: Path) -> None:
    for name in ("cut-a", "cut-b"):
        assert run("set", f"topic={name}", "retention.ms=1").code == 0
    (tmp_path / "m.yaml").write_text(f"{HEAD}entities: []\n")
    refused = run("plan", "m.yaml", "--prune")
    assert refused.code == 1
    assert "prune needs an owner or a scope" in refused.err
    assert run("plan", "m.yaml", "--scope", "topic:cut-").code == 64
    assert run("plan", "m.yaml", "--max-deletes", "1").code == 64
    assert run("plan").code == 64
    assert run("plan", "m.yaml", "--no-such-option").code == 64
    assert run("apply", "m.yaml", "--plan", "plan.json", "--atomic").code == 64
    prune = ("--prune", "--scope", "topic:cut-")
    refused = run("plan", "m.yaml", *prune)
    assert refused.code == 1
    assert "--max-deletes is 0" in refused.err
    planned = run("plan", "m.yaml", *prune, "--max-deletes", "2", "--out", "plan.json")
    assert planned.code == 2, planned
    assert "topic=cut-a" in planned.out
    assert run("set", "topic=cut-c", "retention.ms=1").code == 0
    stale = run("apply", "m.yaml", "--plan", "plan.json")
    assert stale.code == 1
    assert "Changed after the plan was made: topic=cut-c" in stale.err
    assert run("apply", "m.yaml", *prune, "--max-deletes", "3", "--yes").code == 0
    assert run("plan", "m.yaml", *prune).code == 0


def test_a_refusal_names_the_place_in_the_file(run: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(
        f"{HEAD}entities:\n{USER}  - id: topic=file-b\n    configs:\n      flush.ms: x\n"
    )
    for command in ("plan", "apply"):
        refused = run(command, "bad.yaml")
        assert refused.code == 1, refused
        assert "bad.yaml, line 9, column 7: " in refused.err
    shown = json.loads(run("plan", "bad.yaml", "--json").out)
    assert shown["summary"]["refused"] == 1
    (tmp_path / "other.yaml").write_text(f"{HEAD}cluster: nowhere\nentities: []\n")
    assert run("plan", "other.yaml").code == 1
    named = run("plan", "other.yaml", "--cluster", "default")
    assert named.code == 1
    assert "other.yaml, line 3, column 1" in named.err


def test_a_secret_comes_from_a_file_or_the_environment_and_is_never_shown(
    run: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = "secret-of-the-file", "secret-of-the-environment"
    (tmp_path / "password").write_text(f"{one}\n")
    monkeypatch.setenv("CI_KEY", two)
    key = "listener.name.a.ssl"
    (tmp_path / "m.yaml").write_text(
        f"{HEAD}entities:\n  - id: broker=7\n    configs:\n"
        f"      {key}.keystore.password: {{fromFile: password}}\n      {key}.key.password: {{fromEnv: CI_KEY}}\n"
    )
    prefix = ("--env-prefix", "CI_")
    assert "--env-prefix" in run("plan", "m.yaml").err
    texts = [run("plan", "m.yaml", *prefix, "--out", "plan.json"), run("apply", "m.yaml", *prefix, "--yes")]
    assert [each.code for each in texts] == [2, 0], texts
    assert "fingerprint " in texts[0].out
    texts.append(run("plan", "m.yaml", *prefix))
    assert texts[-1].code == 0  # equal secrets are no change
    (tmp_path / "password").write_text("another")
    assert run("plan", "m.yaml", *prefix).code == 2
    (tmp_path / "kept.yaml").write_text(
        f"{HEAD}entities:\n  - id: broker=7\n    configs: {{{key}.keystore.password: null, {key}.key.password: null}}\n"
    )
    assert run("plan", "kept.yaml").code == 0
    said = "".join(each.out + each.err for each in texts) + (tmp_path / "plan.json").read_text()
    assert one not in said
    assert two not in said


def test_an_export_of_an_owner_is_that_of_the_api(service: Service, run: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(f"{HEAD}owner: '7'\nlabels: {{team: x}}\nentities:\n{USER}{TOPIC}")
    assert run("apply", "m.yaml", "--yes").code == 0
    assert run("set", "user=file-a", "consumer_byte_rate=1").code == 0
    url, headers = f"{service.url}/v1/clusters/default/manifests:export", {"Authorization": f"Bearer {service.token}"}

    def exported() -> bool:
        assert run("export", "--format", "manifest", "--owner", "7", "--output", "o.yaml").code == 0
        text = (tmp_path / "o.yaml").read_text()
        asked = httpx.get(url, params={"owner": "7"}, headers=headers | {"Accept": "application/yaml"}).text
        return "retention.ms" in text and text == asked

    wait_for(exported)
    plan = run("plan", "o.yaml")
    assert "consumer_byte_rate" in plan.out, "a key without an owner is removed"
    assert "0 to create, 1 to update, 0 to delete, 2 unchanged" in plan.out
    assert run("export", "--owner", "7").code == 2


def test_an_export_applied_to_an_empty_cluster_gives_equal_znodes(
    service: Service, run: Callable[..., Said], copy: KazooClient, tmp_path: Path
) -> None:
    exported = run("export", "--format", "manifest", "--output", "m.yaml", "--cluster", "odd")
    assert exported.code == 0, exported
    url, headers = f"{service.url}/v1/clusters/odd/manifests:export", {"Authorization": f"Bearer {service.token}"}
    assert httpx.get(url, headers=headers | {"Accept": "application/yaml"}).text == (tmp_path / "m.yaml").read_text()
    unchanged = run("plan", "m.yaml", "--cluster", "odd")
    assert unchanged.code == 0, unchanged
    to_copy = ("m.yaml", "--cluster", "copy")
    refused = run("apply", *to_copy, "--yes")
    assert refused.code == 1, refused
    assert "none is stored" in refused.err
    assert odd_configs.stored(copy) == {}
    lines = (tmp_path / "m.yaml").read_text().splitlines(keepends=True)
    (tmp_path / "m.yaml").write_text("".join(line for line in lines if not line.endswith(": null\n")))
    applied = run("apply", *to_copy, "--yes")
    assert applied.code == 0, applied
    assert odd_configs.stored(copy) == odd_configs.exportable()
    assert run("plan", *to_copy).code == 0
    assert run("export", "--format", "manifest", "--type", "group", "--cluster", "odd").out.endswith("entities: []\n")
