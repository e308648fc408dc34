"""The service itself as a process of the stack: ``confplane serve`` with settings of its own."""

from __future__ import annotations

import http.client
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import confplane
from confplane.devstack.errors import DevStackError
from confplane.devstack.process import Server, port_is_free

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_OK = 200
_OURS = "CONFPLANE_"
_KEPT = ("CONFPLANE_LOG_LEVEL", "CONFPLANE_CLUSTERS__DEFAULT__")
_NEVER_KEPT = ("CONFPLANE_CLUSTERS__DEFAULT__ZOOKEEPER", "CONFPLANE_CLUSTERS__DEFAULT__KAFKA")
_KEPT_WITH_KAFKA = ("CONFPLANE_CLUSTERS__DEFAULT__KAFKA__SASL", "CONFPLANE_CLUSTERS__DEFAULT__KAFKA__TLS")


class ConfplaneServer(Server):
    """``confplane serve`` on 127.0.0.1, with all settings from one file.

    Only the log level and the options of the cluster ``default`` are passed on from the environment: ``confplane dev``
    must never reach a production system whose variables happen to be exported.

    Args:
        data_dir: The working directory and the directory of the log.
        port: Port on 127.0.0.1; a free one if None.
        settings_file: A YAML file with the settings except for the port.
        kafka: True if the settings name a Kafka cluster, whose login and TLS may come from the environment.
    """

    name = "Service"
    stop_seconds = 25.0  # the service drains requests and changes for up to 20 s

    def __init__(self, data_dir: Path, *, port: int | None = None, settings_file: Path, kafka: bool = False) -> None:
        super().__init__(data_dir, port=port)
        self._kafka = kafka
        self._settings_file = settings_file

    @property
    def url(self) -> str:
        """The service's URL; known after the start."""
        return f"http://127.0.0.1:{self.port}"

    def check_port(self) -> None:
        """Check whether the port is taken before any server is started.

        Raises:
            DevStackError: The wanted port is taken; the message names the option for another.
        """
        if self._port is not None and not port_is_free(self._port):
            other = self._port + 1
            raise DevStackError(
                f"Port {self._port} is taken by another process. "
                f"Choose another: `confplane dev --port {other}`, or `make run PORT={other}`."
            )

    @property
    def _marker(self) -> str:
        return str(self._settings_file)

    def _prepare(self) -> None:
        pass

    def _command(self) -> Sequence[str]:
        return [sys.executable, "-m", "confplane", "serve", "--settings-file", str(self._settings_file)]

    def environment(self) -> dict[str, str]:
        """Return the environment of commands with this service's settings.

        It has no settings of any other service.
        """
        kept = {name: value for name, value in os.environ.items() if self._is_kept(name.upper())}
        # Works from any working directory, even if the project is not installed and its path is relative.
        root = str(Path(confplane.__file__).parents[1])
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
            "PYTHONUNBUFFERED": "1",
        }

    def _is_kept(self, variable: str) -> bool:
        if not variable.startswith(_OURS) or (self._kafka and variable.startswith(_KEPT_WITH_KAFKA)):
            return True
        return variable.startswith(_KEPT) and not variable.startswith(_NEVER_KEPT)

    def _environment(self) -> Mapping[str, str]:
        return {
            **self.environment(),
            "CONFPLANE_HTTP__HOST": "127.0.0.1",
            "CONFPLANE_HTTP__PORT": str(self.port),
            # There is no load balancer that needs a drain, and a person waits for the stop.
            "CONFPLANE_HTTP__DRAIN_MS": "0",
        }

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == _OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
