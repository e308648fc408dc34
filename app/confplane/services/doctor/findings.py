"""Findings: problems of an installation, each with the command that fixes it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
