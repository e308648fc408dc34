"""``confplane dev --kraft`` end to end, as the first page of the documentation has it: the first poll of a cluster, which leaves no trace there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kraft.records import offsets
from tests.support.kraft_writer import KraftWriter
from tests.support.processes import program
from tests.support.waiting import until_thread

if TYPE_CHECKING:
    from tests.support.kraft import KraftCluster

ROOT = Path(__file__).parents[2]


def run_line(line: str) -> Any:
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True, cwd="/", timeout=60)
    return json.loads(done.stdout)


def deviations(output: str) -> str:
    """Run the guide's line about them, as printed, and return what it shows."""
    (line,) = [line.strip() for line in output.splitlines() if "rollups run drift" in line]
    # As after `make run`: the environment of Confplane is not active in another shell.
    own = Path(sys.executable).parent
    path = ":".join(each for each in os.environ["PATH"].split(":") if Path(each) != own)
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path},
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("who_deviates", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.skipif(shutil.which("curl") is None, reason="the lines that are printed are for curl")
async def test_a_first_poll_leaves_no_trace_in_the_cluster(
    kraft: KraftCluster, tmp_path: Path, *, who_deviates: bool
) -> None:
    """The guide's words are run as they are printed; in the long run those about who deviates, which start Spark."""
    topics = [f"dev-{number}" for number in range(9)]
    async with KraftWriter(kraft.bootstrap[0]) as writer:
        if who_deviates:
            await writer.create_topics(*topics[:-1], configs={"retention.ms": "1000"})
            await writer.create_topics(topics[-1], configs={"retention.ms": "2000"})
        await writer.quotas(({"user": "dev-alice"}, {"producer_byte_rate": 1000.0}))
        before = await offsets(kraft)
        # The login of another cluster, as somebody may have exported it, stays outside.
        variables = {**os.environ, "CONFPLANE_CLUSTERS__DEFAULT__KAFKA__BOOTSTRAP": '["127.0.0.1:1"]'}
        arguments = ["dev", "--kraft", *kraft.bootstrap, "--data-dir", str(tmp_path / "data"), "--port", "0"]
        with program(["-m", "confplane", *arguments], environment=variables) as running:
            running.read_until("Client configs (KIP-649) can be written here")
            output = running.output
            assert "Everything can be followed. Nothing was written" in output
            assert f"follows the Kafka cluster {kraft.cluster_id} from now on" in output
            lines = [line.strip() for line in output.splitlines() if line.strip().startswith("curl ")]
            quotas, user, topic, _brokers, trail, freshness = lines
            assert run_line(quotas)["items"]
            assert [each["id"] for each in run_line(f"{quotas}'?user=dev-alice'")["items"]] == ["user=dev-alice"]
            (effective,) = run_line(user.replace("NAME", "dev-alice"))["quotas"]
            assert (effective["value"], effective["source"]) == (1000, "user=dev-alice")
            assert "topic=NAME/effective" in topic
            assert run_line(freshness)["target"]["clusterId"] == kraft.cluster_id
            if who_deviates:
                shown = await asyncio.to_thread(deviations, output)
                assert [each for each in topics if f"topic={each}" in shown] == topics[-1:], shown
            assert await offsets(kraft) == before

            await writer.quotas(({"user": "dev-alice"}, {"producer_byte_rate": 2000.0}))

            def recorded() -> bool:
                newest = run_line(trail)["items"][0]
                return bool(newest["kind"] == "observed" and newest["entities"][0]["id"] == "user=dev-alice")

            await until_thread(recorded)
            os.killpg(running.process.pid, signal.SIGINT)
            assert running.wait() == 0
        if who_deviates:
            await writer.delete_topics(*topics)


def test_the_first_page_has_this_command() -> None:
    section = (ROOT / "docs" / "index.md").read_text().split("## See your Kafka 4 cluster\n", 1)[1].split("\n## ", 1)[0]
    (command,) = re.findall(r"```sh\n(.*?)\n```", section, re.DOTALL)
    assert command == "make run KRAFT=localhost:9092"
    # The tests may be run by make, whose variables would make this one say more.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    made = subprocess.run(
        ["make", "-n", *command.split()[1:]], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    words = made.stdout.replace("\\\n", " ").split()
    assert words[words.index("dev") :] == [
        "dev", "--port", "'8080'", "--data-dir", "'.confplane-kraft'", "--kraft", "'localhost:9092'",
    ]  # fmt: skip
    assert "`confplane dev --kraft localhost:9092`" in section
