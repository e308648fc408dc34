"""``confplane configs`` compared with Kafka's own tool: the same arguments on one cluster, the same lines and exit codes."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import httpx
import pytest

from confplane.cli.remote.configs import command
from tests.interop.entities import ODD_NAMES
from tests.support.broker import BROKER_ID
from tests.unit.cli.configs_lines_refused import REFUSED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.admin import Admin
    from tests.support.service import Service

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

_SEEN_S: Final = 60.0
_CREDENTIALS: Final = "SCRAM credential configs for"
TOPIC: Final = "beside"
_ODD: Final = shlex.quote(ODD_NAMES[0])
_BROKER: Final = f"--broker {BROKER_ID}"


class Case(NamedTuple):
    """A line, those that make its start, and the describe that shows what it changed."""

    line: str
    before: tuple[str, ...] = ()
    shown: str = "--describe --entity-type users --entity-name beside"


def _cases() -> list[Case]:
    user, pair, ip = "--user beside", "--user beside --client-defaults", "--ip 10.9.8.4"
    full = (
        "--add-config producer_byte_rate=1000,consumer_byte_rate=3e6,request_percentage=12.5,controller_mutation_rate=7"
    )
    set_user, set_ip = f"--alter {user} {full}", f"--alter {ip} --add-config connection_creation_rate=9"
    set_topic = f"--alter --topic {TOPIC} --add-config 'cleanup.policy=[compact,delete],retention.ms=5000'"
    set_broker = f"--alter {_BROKER} --add-config message.max.bytes=2000000"
    default = "--entity-type brokers --entity-default"
    set_default = f"--alter {default} --add-config message.max.bytes=3000000"
    topic, broker = f"--describe --topic {TOPIC}", f"--describe {_BROKER}"
    return [
        Case(set_user),
        Case("--describe --entity-type users --entity-name beside", (set_user,)),
        Case(f"--alter {user} --delete-config producer_byte_rate,request_percentage", (set_user,)),
        Case(f"--alter {user} --delete-config producer_byte_rate --add-config consumer_byte_rate=5", (set_user,)),
        Case(
            "--describe --user beside-two",
            ("--alter --user beside-two --add-config request_percentage=5,producer_byte_rate=1",),
            "--describe --user beside-two",
        ),
        Case(f"--alter {user} --delete-config no_such_rate", (set_user,)),
        Case(f"--alter {user} --add-config producer_byte_rate=ten", (set_user,)),
        Case(f"--alter {user} --add-config producer_byte_rate=1,consumer_byte_rate=2=3", (set_user,)),
        Case(f"--alter {pair} {full}", shown=f"--describe {pair}"),
        Case(f"--describe {pair}", (f"--alter {pair} {full}",)),
        Case("--describe --entity-type users --entity-name beside --entity-type clients", (f"--alter {pair} {full}",)),
        Case(f"--alter --entity-type clients --entity-name {_ODD} {full}", shown=f"--describe --client {_ODD}"),
        Case(f"--describe --client {_ODD}", (f"--alter --client {_ODD} {full}",)),
        Case("--describe --user nobody-is-called-so"),
        Case(set_ip, shown=f"--describe {ip}"),
        Case(f"--describe {ip}", (set_ip,), f"--describe {ip}"),
        Case(f"--alter {ip} --delete-config connection_creation_rate", (set_ip,), f"--describe {ip}"),
        Case(set_topic, shown=topic),
        Case(topic, (set_topic,), topic),
        Case(f"{topic} --all", (set_topic,), topic),
        Case(f"--alter --topic {TOPIC} --delete-config retention.ms", (set_topic,), topic),
        Case(f"--alter --topic {TOPIC} --delete-config segment.ms", (set_topic,), topic),
        Case(f"--alter --topic {TOPIC} --add-config retention.ms=soon", (set_topic,), topic),
        Case(f"--alter --topic {TOPIC} --add-config no.such.key=1", (set_topic,), topic),
        Case("--describe --topic no-such-topic"),
        Case("--describe --topic 'a b'"),
        Case(set_broker, shown=broker),
        Case(broker, (set_broker, set_default), broker),
        Case(f"{broker} --all", (set_broker, set_default), broker),
        Case("--describe --entity-type brokers", (set_broker, set_default), broker),
        Case(f"--describe {default}", (set_default,), f"--describe {default}"),
        Case(f"--alter {_BROKER} --delete-config message.max.bytes", (set_broker,), broker),
        Case(f"--alter {_BROKER} --add-config broker.id=7", (set_broker,), broker),
        Case(f"--alter {default} --delete-config message.max.bytes", (set_default,), f"--describe {default}"),
    ]


@pytest.fixture
def ours(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], tuple[int, list[str]]]:
    """Runs a line of ours: its exit code and its lines on standard output.

    The service reads up to the moment of the line first: both tools would otherwise agree on what neither knows yet.
    """
    (tmp_path / "token").write_text(service.token)
    monkeypatch.setenv("CONFPLANE_URL", service.url)
    monkeypatch.setenv("CONFPLANE_TOKEN_FILE", str(tmp_path / "token"))

    def run(line: str) -> tuple[int, list[str]]:
        httpx.get(
            f"{service.url}/v1/clusters/default/client-quotas",
            params={"consistency": "strong", "pageSize": "1"},
            headers={"Authorization": f"Bearer {service.token}"},
        ).raise_for_status()
        code = command.run(shlex.split(line))
        return code, capsys.readouterr().out.splitlines()

    return run


@pytest.fixture
def theirs(admin: Admin) -> Callable[[str], tuple[int, list[str]]]:
    """Runs a line of Kafka's tool; of a failure there is the exit code alone, and credentials are not ours to show."""

    def run(line: str) -> tuple[int, list[str]]:
        code, output = admin.config_command(*shlex.split(line))
        lines = [each for each in output.splitlines() if not each.startswith(_CREDENTIALS)]
        return code, [] if code else lines

    return run


def wait_equal(
    left: Callable[[str], tuple[int, list[str]]], right: Callable[[str], tuple[int, list[str]]], line: str
) -> None:
    """Wait until both describe the same."""
    end = time.monotonic() + _SEEN_S
    while True:
        one, two = left(line), right(line)
        if (one[0], sorted(one[1])) == (two[0], sorted(two[1])):
            return
        assert time.monotonic() < end, f"{line}\n{one}\n{two}"
        time.sleep(0.05)


@pytest.mark.usefixtures("restored")
def test_both_tools_print_the_same_and_do_the_same(
    admin: Admin, ours: Callable[[str], tuple[int, list[str]]], theirs: Callable[[str], tuple[int, list[str]]]
) -> None:
    admin.create_topics(TOPIC)
    differences = []
    ends: dict[int, int] = {}
    for case in _cases():
        results = []
        for tool in (theirs, ours):
            alters = case.line.startswith("--alter")
            # A describe leaves for the other tool what it found.
            if alters or tool is theirs:
                for line in case.before:
                    assert theirs(line)[0] == 0, line
                wait_equal(ours, theirs, case.shown)
            code, lines = tool(case.line)
            # Entities come in the order of a hash map there.
            results.append((code, sorted(lines) if "users" in case.line else lines))
            if alters:
                wait_equal(ours, theirs, case.shown)
        ends[results[0][0]] = ends.get(results[0][0], 0) + 1
        if results[0] != results[1]:
            differences.append(f"{case.line}\n  {results[0]}\n  {results[1]}")
    assert differences == []
    assert ends.keys() == {0, 1}
    assert ends[1] >= 9


def test_what_is_refused_here_is_refused_there(theirs: Callable[[str], tuple[int, list[str]]], tmp_path: Path) -> None:
    """The lines of Kafka's tests, but for loggers, which only a broker knows, and host names, which would be resolved."""
    (tmp_path / "new.properties").write_text("a=b")
    for case in REFUSED:
        if " " in case.of or "loggers" in case.reason or "IPv4" in case.reason:
            continue
        line = case.line.replace("{file}", str(tmp_path / "new.properties"))
        assert theirs(line)[0] == 1, line
