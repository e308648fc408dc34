"""Frozen dataclasses of which a request makes many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

__all__ = ("fast_dataclass",)

if TYPE_CHECKING:
    from dataclasses import dataclass as fast_dataclass
else:

    def fast_dataclass(*, frozen: bool, slots: bool) -> Any:
        """Decorate as ``dataclass`` does, except that only mypy refuses to set a field of a frozen instance.

        At runtime this check doubles the time in which an instance is made, and a change makes some twenty of them.
        """
        return dataclass(slots=slots, unsafe_hash=frozen)
