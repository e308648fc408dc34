"""Sentences that operators should know, each in a form for everybody and one that names names.

``/readyz`` is open to all, so that probes need no token. Whoever shows a valid token is told which entities, topics,
znodes and people are meant. Both forms are written where the sentence is made; nothing is cut out of one afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence.

    Attributes:
        public: The form for everybody: no name of an entity, a topic, a znode or a person, and nothing stored.
        detailed: The form with names; None where the public one says it all.
    """

    public: str
    detailed: str | None = None

    def text(self, *, named: bool) -> str:
        """Return the form with names, or the one for everybody."""
        return self.detailed if named and self.detailed is not None else self.public

    def about(self, cluster: str) -> Notice:
        """Return the same, said of a cluster."""
        detailed = None if self.detailed is None else f"{cluster}: {self.detailed}"
        return Notice(f"{cluster}: {self.public}", detailed)

    def __str__(self) -> str:
        """Return the form with names."""
        return self.text(named=True)
