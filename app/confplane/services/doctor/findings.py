"""Findings: problems of an installation, each with the command that fixes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """The severity of a finding."""

    ERROR = "error"
    """Something does not work, or a promise does not hold."""
    WARNING = "warning"
    """Something will not work later, or is not as it should be."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem."""

    check: str
    """The name of the check, for programs."""
    severity: Severity
    text: str
    command: str
    cluster: str | None = None

    def as_json(self) -> dict[str, str | None]:
        """Return the finding as JSON."""
        return {
            "check": self.check,
            "severity": self.severity.value,
            "cluster": self.cluster,
            "text": self.text,
            "command": self.command,
        }


COMMAND: Final = re.compile(r"`(confplane [^`]+)`")
REMEDIES: Final = (
    (r"synchronous_commit is", "ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf()"),
    (r"synchronous_standby_names is empty", "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'"),
    (r"no commit ends until one is", "start a standby, or ALTER SYSTEM RESET synchronous_standby_names"),
    (r"owns tables|is a superuser", "CREATE ROLE, postgres.dsn, confplane migrate"),
    (r"later version of this service", "upgrade this process to the later release"),
    (r"not notifications", "zkCli.sh delete the child below /config/changes"),
    (r"do not name a config entity", "fix the tool that writes them, and write its changes again"),
    (r"A znode below|can't be read or written back", "fix the znode with the tool that wrote it"),
    (r"may not be read with this identity", "zkCli.sh setAcl, or clusters.NAME.zookeeper_acl"),
    (r"not spelled as Kafka spells them", "zkCli.sh delete the znode"),
    (r"brokers can list", "confplane compact --cluster NAME --apply"),
    (r"[Cc]lock", "set the clocks of the machines, by NTP"),
    (r"changed externally again and again", "confplane drift list --cluster NAME"),
    (r"Kafka cluster|brokers do not use", "confplane target status --cluster NAME"),
    (r"grants sessions of", "lower minSessionTimeout of the ZooKeeper servers"),
)
"""Commands for warnings of ``/readyz`` that name none, by a part of their text."""
_OF_READYZ: Final = "see the table of alerts in docs/operations.md"


def error(check: str, text: str, command: str, cluster: str | None = None) -> Finding:
    """Return an error."""
    return Finding(check, Severity.ERROR, text, command, cluster)


def warning(check: str, text: str, command: str, cluster: str | None = None) -> Finding:
    """Return a warning."""
    return Finding(check, Severity.WARNING, text, command, cluster)


def of_readyz(check: str, text: str, cluster: str | None = None) -> Finding:
    """Return the finding of a warning that ``/readyz`` shows as well, which mostly names its command."""
    named = COMMAND.search(text)
    known = (command for pattern, command in REMEDIES if re.search(pattern, text))
    command = named[1] if named else next(known, _OF_READYZ)
    return warning(check, text, command if cluster is None else command.replace("NAME", cluster), cluster)
