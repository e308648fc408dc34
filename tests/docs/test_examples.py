"""The settings, the commands and the SQL of docs/production.md."""

from __future__ import annotations

import shlex
import uuid
from typing import TYPE_CHECKING

import pytest
import yaml
from typer.testing import CliRunner

from confplane.audit.migrate import upgrade
from confplane.cli.commands import cli
from confplane.settings import Settings
from tests.audit.rows import fetch
from tests.docs import site
from tests.support import documents
from tests.support.processes import ROOT

if TYPE_CHECKING:
    from confplane.devstack.postgres import Postgres

PRODUCTION = (site.DOCS / "production.md").read_text()
COMMANDS = [
    words
    for block in documents.blocks(PRODUCTION)
    for line in block.splitlines()
    if (words := shlex.split(line, comments=True))[0] == "confplane"
]


def test_the_settings_are_valid() -> None:
    (text,) = documents.blocks(PRODUCTION, "yaml")
    settings = Settings.model_validate(yaml.safe_load(text))
    assert settings.postgres.migration_dsn is not None
    assert list(settings.clusters) == ["payments"]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[1])
def test_the_commands_exist_with_their_options(words: list[str]) -> None:
    shown = CliRunner().invoke(cli, [words[1], "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert [word for word in words if word.startswith("--") and word not in shown.output] == []


def test_the_page_names_the_chart_with_its_version() -> None:
    described = yaml.safe_load((ROOT / "deploy/helm/confplane/Chart.yaml").read_text())
    assert f"helm push confplane-{described['version']}.tgz " in PRODUCTION


def test_the_page_has_the_three_commands() -> None:
    assert [words[1] for words in COMMANDS] == ["migrate", "freeze", "serve"]


def test_the_database_that_the_page_creates_can_be_migrated_and_used(postgres: Postgres) -> None:
    (sql,) = documents.blocks(PRODUCTION, "sql")
    name = f"page_{uuid.uuid4().hex}"
    owner, service = (f"postgresql://{role}:...@127.0.0.1:{postgres.port}/{name}" for role in (f"{name}_owner", name))
    try:
        for statement in sql.replace("confplane", name).splitlines():
            postgres.query(statement)
        upgrade(owner, name)
        assert fetch(service, "SELECT count(*) FROM intents") == [(0,)]
    finally:
        postgres.query(f"DROP DATABASE IF EXISTS {name}")
        postgres.query(f"DROP ROLE IF EXISTS {name}, {name}_owner")
