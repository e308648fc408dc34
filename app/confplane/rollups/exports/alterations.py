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
"""The principal of writes past the service, who is nobody."""
_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class ExportAlterations:
    """The alterations of an export of the trail.

    Attributes:
        without: Columns of :data:`REMOVABLE` that are left out, sorted.
        key: The key that principals are replaced by; None to leave them in clear.
    """

    without: tuple[str, ...] = ()
    key: bytes | None = field(default=None, repr=False)

    @property
    def pseudonyms(self) -> str | None:
        """The name of the key, to recognise the same key again."""
        return None if self.key is None else _digest(self.key, "the name of this key")

    def of(self, changes: DataFrame) -> DataFrame:
        """Return the changes as they are exported."""
        kept = changes.drop(*self.without)
        if self.key is None:
            return kept
        # The key travels inside the serialized function, and stands in no plan.
        return kept.withColumn(_PRINCIPAL, F.udf(partial(pseudonym, self.key), "string", useArrow=False)(_PRINCIPAL))


def pseudonym(key: bytes, principal: str) -> str:
    """Return the name that stands for a principal: the same for the same key, and of no use without the key."""
    if principal == _UNKNOWN:
        return principal
    kind, colon, name = principal.partition(":")
    return f"{kind}:{_digest(key, name)}" if colon else _digest(key, principal)


def _digest(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:_DIGITS]
