"""Warnings for operators, each as one sentence in two forms: without names, and with names.

``/readyz`` is open to all, so that probes need no token. A caller with a valid token also sees the names of entities,
topics, znodes and people. Both forms are written where the warning is created; no form is derived from the other.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OperatorWarning:
    """A warning in both forms.

    Attributes:
        public: The form for everybody: without names of entities, topics, znodes or people, and without stored content.
        detailed: The form with names; None if the public form is complete.
    """

    public: str
    detailed: str | None = None

    def text(self, *, named: bool) -> str:
        """Return the form with names, or the form for everybody."""
        return self.detailed if named and self.detailed is not None else self.public

    def about(self, cluster: str) -> OperatorWarning:
        """Return the warning prefixed with the name of its cluster."""
        detailed = None if self.detailed is None else f"{cluster}: {self.detailed}"
        return OperatorWarning(f"{cluster}: {self.public}", detailed)

    def __str__(self) -> str:
        """Return the form with names."""
        return self.text(named=True)
