"""Alterations of an export, since the lake is outside the grants: columns left out, and pseudonyms of principals."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own pages use

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REMOVABLE: Final = ("reason", "request_id", "source", "ticket")
"""Columns of the trail that no job reads."""
LEAST_KEY_BYTES: Final = 16

_PRINCIPAL: Final = "principal"
_UNKNOWN: Final = "External:unknown"
"""The placeholder principal of external writes."""
_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class ExportAlterations:
    """The alterations of an export of the trail.

    Attributes:
        without: Columns of :data:`REMOVABLE` that are left out, sorted.
        key: The key for the pseudonyms of principals; None to leave them in clear text.
    """

    without: tuple[str, ...] = ()
    key: bytes | None = field(default=None, repr=False)

    @property
    def pseudonyms(self) -> str | None:
        """A name that identifies the key."""
        return None if self.key is None else _digest(self.key, "the name of this key")

    def of(self, changes: DataFrame) -> DataFrame:
        """Return the changes in the form of the export."""
        kept = changes.drop(*self.without)
        if self.key is None:
            return kept
        # The key is part of the serialized function, and does not appear in plans.
        return kept.withColumn(_PRINCIPAL, F.udf(partial(pseudonym, self.key), "string", useArrow=False)(_PRINCIPAL))


def pseudonym(key: bytes, principal: str) -> str:
    """Return the pseudonym of a principal: the same for the same key, and not reversible without the key."""
    if principal == _UNKNOWN:
        return principal
    kind, colon, name = principal.partition(":")
    return f"{kind}:{_digest(key, name)}" if colon else _digest(key, principal)


def _digest(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:_DIGITS]
