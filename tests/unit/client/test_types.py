"""The generated types, and the exceptions, are those of the specification and of the service."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from confplane.api.problems import TABLE
from confplane.client import ProblemError, types
from confplane.client import errors as client_errors
from confplane.client.errors import problem_of
from confplane.domain.errors import ConfplaneError, KafkaCode
from tests.support.formatting import formatted
from tests.unit.client.generate import FOLDER, generate, specification

if TYPE_CHECKING:
    from pathlib import Path


def test_the_committed_types_are_those_of_the_specification(tmp_path: Path) -> None:
    made = formatted(generate(specification()), tmp_path)
    committed = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.py")}
    assert made == committed, "run `make openapi` and look at what changed"


def test_each_body_is_a_name_of_the_package() -> None:
    files = [path for path in FOLDER.glob("*.py") if path.name != "__init__.py"]
    bodies = re.findall(r"(?m)^class (\w+)\(\w+\):", "".join(path.read_text("utf-8") for path in files))
    assert len(bodies) == len(set(bodies)) > 100
    assert set(bodies) <= set(dir(types))


@pytest.mark.parametrize("kind", [pytest.param(kind, id=row.slug) for kind, row in TABLE.items()])
def test_every_problem_has_the_class_of_its_code_or_a_finer_one(kind: type[ConfplaneError]) -> None:
    row = TABLE[kind]
    body = {"type": f"/problems/{row.slug}", "title": row.title, "detail": "d", "kafkaErrorCode": int(kind.code)}
    error = problem_of(row.status, body)
    assert type(error) is not ProblemError
    assert error.code == kind.code
    assert (error.problem_type, error.kafka_error_code) == (row.slug, kind.code)


def test_every_type_of_problem_with_a_class_of_its_own_is_one_of_the_service() -> None:
    assert set(client_errors._BY_TYPE) <= {row.slug for row in TABLE.values()}


def test_every_code_of_kafka_has_a_class() -> None:
    assert {kind.code for kind in ProblemError.__subclasses__()} == set(KafkaCode) - {KafkaCode.NONE}
