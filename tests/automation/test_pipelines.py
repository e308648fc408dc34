"""The pipelines of docs/automation.md: YAML that parses, with the commands that the tests run."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.support.processes import ROOT

# By tests/automation/tofu.py. A plan of the tests has an exit code besides.
TESTED = {"tofu init -input=false", "tofu plan -input=false", "tofu apply -auto-approve -input=false"}


def commands(pipeline: Any) -> set[str]:
    if isinstance(pipeline, dict):
        return set().union(*map(commands, pipeline.values()))
    if isinstance(pipeline, list):
        return set().union(*map(commands, pipeline))
    return {pipeline} if isinstance(pipeline, str) and pipeline.startswith("tofu ") else set()


def test_pipelines_have_the_commands_that_are_tested() -> None:
    text = (ROOT / "docs" / "automation.md").read_text()
    text = text.partition("\n## Terraform and OpenTofu\n")[2]
    pipelines = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    assert len(pipelines) == 2
    for pipeline in pipelines:
        assert commands(pipeline) == TESTED
