"""The states of a whole cluster: its freeze, and the layout of its client configs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.domain.facets import Tree


@dataclass(frozen=True, slots=True)
class LayoutCheck:
    """What a transaction of client configs rests on: where they are (docs/architecture.md, "Layout of client configs").

    The version is that of the layout's znode, which must not have changed.
    """

    version: int
    claim: Tree | None = None
    """Nobody has said yet where they are: this transaction does."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """Why no config of a cluster may be written, who decided it, and when."""

    reason: str
    principal: str | None
    """None where the stored freeze can't be read; ``reason`` says so then."""
    since_ms: int

    def __str__(self) -> str:
        """Return it as part of a sentence."""
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return f"since {since} by {self.principal or 'somebody'}: {self.reason}"


@dataclass(frozen=True, slots=True)
class FreezeState:
    """A cluster's freeze, if there is one, as ZooKeeper has it at a version."""

    version: int
    freeze: Freeze | None
    czxid: int | None = None
    """Of the znode."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which tree has a cluster's client configs."""

    tree: Tree
    source: Tree | None = None
    """They are being moved: this tree may have some of them still."""

    def __str__(self) -> str:
        """Return it as part of a sentence."""
        return self.tree.layout if self.source is None else f"{self.tree.layout}, being moved from {self.source.layout}"


@dataclass(frozen=True, slots=True)
class LayoutState:
    """A cluster's layout, as ZooKeeper has it at a version; None before anybody has written client configs."""

    version: int
    layout: Layout | None
    czxid: int | None = None
    """Of the znode."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process finds a cluster's client configs, for all that it has followed."""

    tree: Tree
    """The stored layout's, or that of the settings where none is stored."""
    source: Tree | None = None
    """Where those are to be looked for that ``tree`` has not."""
    moving: bool = False
    settled: bool = False
    """Whether a layout is stored."""
    version: int = -1
    """Of the layout's znode; -1 as long as it was not read."""
    defect: str | None = None
    """Why that can't be read; it is as it was before then."""
