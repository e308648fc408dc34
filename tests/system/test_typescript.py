"""Clients in TypeScript, with the types that the field's usual generator makes of the specification."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.domain.entities import Entity
from tests.contract.api import FILE
from tests.support import tools
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.facets import ConfplaneClient
    from tests.support.service import Service

pytestmark = pytest.mark.interop

EXAMPLE: Final = tools.ROOT / "examples" / "clients" / "typescript" / "dynamicConfigs.ts"
BODIES: Final = tools.TYPESCRIPT_SOURCE / "types.ts"
GUIDE: Final = tools.ROOT / "docs" / "clients.md"
VECTORS: Final = tools.ROOT / "tests" / "vectors" / "clients.json"
STRICT: Final = (
    *("--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "--noEmitOnError"),
    *("--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom"),
)
FOLLOW: Final = """
import { follow } from "./dynamicConfigs.js";
const { token, ...client } = JSON.parse(process.argv[2]);
const refused = (values) => (values.get("acks") === "0" ? [{ key: "acks", reason: "needs an answer" }] : []);
for await (const values of follow({ ...client, refused, token: () => token })) {
  console.log(JSON.stringify(Object.fromEntries(values)));
}
"""
ANSWER_VECTORS: Final = """
import { due, lacking, pauseMs } from "./dynamicConfigs.js";
const { errors, pauses, reports } = JSON.parse(process.argv[2]);
const ends = ({ maxAgeMs, failures, retryAfterS }) =>
  [0, 1].map((share) => pauseMs(maxAgeMs, failures, retryAfterS ?? 0, share) / 1000);
console.log(JSON.stringify({
  off: errors.map((each) => lacking(each.status, each.kafkaErrorCode)),
  pauses: pauses.map(ends),
  due: reports.map((each) => due(each.changed, each.sinceS ?? undefined)),
}));
"""

WAIT: Final = """
import { follow } from "./dynamicConfigs.js";
globalThis.fetch = async () => new Response(JSON.stringify({ entries: [], configs: [] }));
globalThis.setTimeout = (_, wait) => { console.log(wait); process.exit(); };
const client = JSON.parse(process.argv[2]);
for await (const _ of follow({ ...client, token: () => "" }));
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as JavaScript, compiled with the types that the line of the guide generates."""
    generator, compiler = tools.obtain(tools.openapi_typescript), tools.obtain(tools.typescript)
    directory = tmp_path_factory.mktemp("typescript")
    (directory / "openapi").mkdir()
    shutil.copy(FILE, directory / "openapi")
    (directory / "package.json").write_text('{"type": "module"}')
    for source in (EXAMPLE, BODIES):
        shutil.copy(source, directory)
    [line] = re.findall(r"^npx openapi-typescript (.*)$", GUIDE.read_text(), re.MULTILINE)
    assert line in EXAMPLE.read_text()
    commands: list[list[str | Path]] = [[generator, *line.split()], [compiler, *STRICT, EXAMPLE.name, BODIES.name]]
    for command in commands:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    return directory


def write_program(compiled: Path, name: str, program: str, argument: Any) -> list[str]:
    """Write a program beside the example; return its command line."""
    (compiled / name).write_text(program)
    return ["node", str(compiled / name), json.dumps(argument)]


def test_the_example_passes_the_vectors_of_errors_pauses_and_reports(compiled: Path) -> None:
    vectors = json.loads(VECTORS.read_text())
    command = write_program(compiled, "vectors.js", ANSWER_VECTORS, vectors)
    found = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    assert found["off"] == [each["off"] for each in vectors["errors"]]
    assert found["due"] == [each["due"] for each in vectors["reports"]]
    assert found["pauses"] == [pytest.approx([each["least"], each["most"]]) for each in vectors["pauses"]]


def test_polls_that_are_months_apart_do_not_come_at_once(compiled: Path) -> None:
    """JavaScript ends a timer of more than 2**31 - 1 ms at once."""
    followed = {"user": "alice", "supportedConfigs": ["acks"], "maxAgeMs": 10 * 2**31}
    done = subprocess.run(
        write_program(compiled, "wait.js", WAIT, followed), capture_output=True, check=True, timeout=60
    )
    assert int(done.stdout) == 2**31 - 1


async def test_the_example_follows_the_changes_of_a_client_and_reports_them(
    service: Service, client: ConfplaneClient, compiled: Path, tmp_path: Path
) -> None:
    entity = Entity.of(user="Zoë b (ts)", client_id="billing")
    await client.put("client-configs", entity, {"acks": "1"})
    followed = {
        "url": service.url,
        "cluster": "default",
        "token": service.token,
        "user": "Zoë b (ts)",
        "clientId": "billing",
        "supportedConfigs": ["acks"],
        "software": {"softwareName": "example-ts", "softwareVersion": "1.0"},
        "maxAgeMs": 200,
        "instance": "ts-1",
    }

    async def reported(revision: int | None) -> Any:
        found = (await client.request("GET", f"client-configs/{entity.id}/status")).body
        return found if [each["appliedRevision"] for each in found["appliedBy"]] == [str(revision)] else None

    said = tmp_path / "said"
    command = write_program(compiled, "follow.js", FOLLOW, followed)
    with said.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: ASYNC220 - a start takes no time
    try:
        await until(lambda: said.read_text().startswith('{"acks":"1"}'), why=said.read_text)
        changed = await client.put("client-configs", entity, {"acks": "all"})
        await until(lambda: said.read_text().endswith('{"acks":"all"}\n'), why=said.read_text)
        assert (await until(lambda: reported(changed.revision), why=said.read_text))["refused"] == []
        changed = await client.put("client-configs", entity, {"acks": "0"})
        status = await until(lambda: reported(changed.revision), why=said.read_text)
        software = {"softwareName": "example-ts", "softwareVersion": "1.0", "instances": 1}
        assert status["refused"] == [{"key": "acks", "reason": "needs an answer", **software}]
        await client.delete("client-configs", entity)
        await until(lambda: said.read_text().endswith("{}\n"), why=said.read_text)
    finally:
        process.kill()
        process.wait()
