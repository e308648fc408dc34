"""Kafka's own tools, in one long-lived process that tests and benches talk to."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from confplane.devstack.java import find_java
from confplane.devstack.process import tail
from tests.support.java import java_environment, quick_java

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_SOURCE = Path(__file__).with_name("Admin.java")
# Longer than any limit inside the process, which says more than a missing answer does.
_ANSWER_S = 300.0


class JavaCalls:
    """A Java program that answers calls, a line of JSON each; it runs from its source, on Kafka's class path.

    Args:
        source: The program.
        log: A file for what it says besides.
        class_path: Of Kafka, as Java takes it.
        bootstrap: The broker's address, the program's one argument.
        options: Of the JVM.
    """

    def __init__(
        self, source: Path, log: Path, *, class_path: str, bootstrap: str, options: Sequence[str] = ()
    ) -> None:
        self._log = log
        self._command = [
            str(find_java()), *options, "-Dfile.encoding=UTF-8", "-Djava.net.preferIPv4Stack=true",
            "-cp", class_path, str(source), bootstrap,
        ]  # fmt: skip
        self._answers: queue.Queue[str | None] = queue.Queue()

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                env=java_environment(),
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        # It ends with its input, as it does when this process is killed.
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(30)
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def call(self, call: str, *, answer_s: float = _ANSWER_S, **arguments: Any) -> Any:
        """Make a call and return its result; one at a time."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"call": call, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=answer_s)
        except queue.Empty:
            raise AssertionError(f"{call}: no answer in {answer_s} s. The end of its log:\n{tail(self._log)}") from None
        if line is None:
            raise AssertionError(f"{call}: the process ended. The end of its log:\n{tail(self._log)}")
        answer = json.loads(line)
        assert "fault" not in answer, f"{call}: {answer['fault']}"
        return answer["result"]


class Admin(JavaCalls):
    """Kafka's AdminClient for one broker; see ``Admin.java``. An error that Kafka answers is a result with its code.

    Args:
        directory: Where it logs.
        class_path: Of Kafka, as Java takes it.
        bootstrap: The broker's address.
    """

    def __init__(self, directory: Path, *, class_path: str, bootstrap: str) -> None:
        super().__init__(
            _SOURCE, directory / "admin.log", class_path=class_path, bootstrap=bootstrap, options=quick_java()
        )

    # ------------------------------------------------------------ quotas

    def describe_quotas(self, components: Sequence[Mapping[str, Any]] = (), *, strict: bool = False) -> Any:
        """``{"code", "name", "message", "entries": [{"entity": {type: name or None}, "quotas": {key: value}}]}``."""
        return self.call("describeQuotas", components=list(components), strict=strict)

    def alter_quotas(
        self,
        *entries: tuple[Mapping[str, str | None], Iterable[tuple[str, float | str | None]]],
        validate_only: bool = False,
    ) -> Any:
        """Each entry is an entity and its ops, key and value or None to remove; an outcome for each."""
        listed = [{"entity": dict(entity), "ops": [list(op) for op in ops]} for entity, ops in entries]
        return self.call("alterQuotas", entries=listed, validateOnly=validate_only)

    # ------------------------------------------------------------ configs

    def describe_configs(self, kind: str, name: str) -> dict[str, Any]:
        """All configs of a ``TOPIC`` or ``BROKER``: name to value, source, type, readOnly, sensitive, synonyms."""
        (answer,) = self.call("describeConfigs", resources=[[kind, name]])
        assert answer["code"] == 0, answer
        configs: dict[str, Any] = answer["configs"]
        return configs

    def describe_configs_error(self, kind: str, name: str) -> int:
        """The error code of a describe."""
        (answer,) = self.call("describeConfigs", resources=[[kind, name]])
        return int(answer["code"])

    def alter_configs(
        self, kind: str, name: str, ops: Iterable[tuple[str, str, str | None]], *, validate_only: bool = False
    ) -> Any:
        """Ops are ``(key, "SET" and so on, value)``; the outcome."""
        listed = [{"resource": [kind, name], "ops": [list(op) for op in ops]}]
        (answer,) = self.call("alterConfigs", resources=listed, validateOnly=validate_only)
        return answer

    def create_topics(self, *names: str) -> None:
        """Create topics of one partition and wait until the broker knows them."""
        answer = self.call("createTopics", names=list(names))
        assert answer["code"] == 0, answer
        self.until_known(*names)

    def until_known(self, *names: str) -> None:
        """Wait until the broker knows topics: after a start, too, it does only once the controller told it."""
        deadline = time.monotonic() + 120
        for name in names:
            while self.describe_configs_error("TOPIC", name):
                assert time.monotonic() < deadline, f"the broker does not know the topic {name}"
                time.sleep(0.05)

    def delete_topic(self, name: str) -> None:
        """Delete a topic; the broker does it soon after."""
        answer = self.call("deleteTopics", name=name)
        assert answer["code"] == 0, answer

    def config_command(self, *arguments: str) -> tuple[int, str]:
        """Run what ``kafka-configs.sh`` runs; its exit status and what it printed."""
        answer = self.call("configCommand", arguments=list(arguments))
        return answer["status"], answer["output"]

    # ------------------------------------------------------------ credentials

    def set_scram(self, user: str, password: str | None, mechanism: str = "SCRAM-SHA-256") -> None:
        """Set a user's password, or delete it."""
        answer = self.call("alterScram", user=user, mechanism=mechanism, password=password)
        assert answer["code"] == 0, answer

    def scram(self) -> dict[str, list[str]]:
        """Users and the mechanisms that they have credentials for."""
        found: dict[str, list[str]] = self.call("describeScram")
        return found

    def login(self, bootstrap: str, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Any:
        """Log in and ask for the brokers; the outcome."""
        return self.call("login", bootstrap=bootstrap, user=user, password=password, mechanism=mechanism)

    def produce(self, bootstrap: str, user: str, password: str, **how: Any) -> Any:
        """Produce as a user: ``{"code", "bytes", "seconds", "throttledMs"}`` of what was measured.

        How: ``topic``, ``valueBytes``, ``seconds``, and if wanted ``warmUpS``, ``mostBytes``, ``untilThrottled``.
        """
        return self.call("produce", bootstrap=bootstrap, user=user, password=password, mechanism="SCRAM-SHA-256", **how)
