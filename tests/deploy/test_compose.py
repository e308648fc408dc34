"""compose.yaml: what can be checked of it without Docker."""

from __future__ import annotations

from typing import Any, Final

import pytest
import yaml
from typer.testing import CliRunner

import confplane
from confplane.cli.commands import cli
from confplane.settings import Settings
from tests.support.processes import ROOT

COMPOSE: Final[dict[str, Any]] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
OURS: Final = sorted(name for name, each in SERVICES.items() if each["image"].startswith("confplane"))


def test_references_name_what_is_there() -> None:
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", ())) <= set(SERVICES) - {name}
        assert {each["source"] for each in service.get("configs", ())} <= set(COMPOSE["configs"])
        assert {each.partition(":")[0] for each in service.get("volumes", ())} <= set(COMPOSE["volumes"])
        health = [
            other for other, how in service.get("depends_on", {}).items() if how["condition"] == "service_healthy"
        ]
        assert all("healthcheck" in SERVICES[other] for other in health)


def test_the_settings_are_valid_and_switch_the_console_on() -> None:
    settings = Settings.model_validate(yaml.safe_load(COMPOSE["configs"]["settings"]["content"]))
    assert settings.console_key_file is not None
    assert not settings.console_is_secure
    servers = {settings.clusters[name].zookeeper.partition(":")[0] for name in settings.clusters}
    assert servers <= set(SERVICES)
    kafka = settings.clusters["trial"].kafka
    assert kafka is not None
    listener = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert [listener.removeprefix("PLAINTEXT://")] == list(kafka.bootstrap)


def test_the_images_are_those_that_make_images_builds() -> None:
    assert {SERVICES[name]["image"] for name in OURS} == {f"confplane:${{CONFPLANE_TAG:-{confplane.__version__}}}"}


@pytest.mark.parametrize("name", [each for each in OURS if isinstance(SERVICES[each].get("command"), list)])
def test_commands_exist_with_their_options(name: str) -> None:
    command = SERVICES[name]["command"]
    if "entrypoint" in SERVICES[name]:
        compile(command[0], "compose.yaml", "exec")
        return
    words = [each for each in command if not each.startswith("-")]
    path = words[: 2 if command[0] == "target" else 1]
    shown = CliRunner().invoke(cli, [*path, "--help"])
    assert shown.exit_code == 0, shown.output
    assert all(each in shown.output for each in command if each.startswith("--"))


def test_ports_are_open_to_this_machine_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports == ["127.0.0.1:8080:8080"]
