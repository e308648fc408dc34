"""Client quotas and client configs together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.client.core.calls import call
from confplane.client.core.operations import Family, S, operation
from confplane.client.families.bodies import ClientChange, client_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from confplane.client.core.calls import ApiCall, WriteOptions
    from confplane.client.types import AlteredClients


class Clients(Family[S]):
    """Both facets of users and client-ids."""

    @operation
    def alter(
        self, changes: Sequence[ClientChange], *, atomic: bool = False, **terms: Unpack[WriteOptions]
    ) -> ApiCall[AlteredClients]:
        """Alter quotas and client configs, those of an entity in one change.

        Args:
            changes: The entities with their new values.
            atomic: All in one change, or nothing.
            **terms: The terms of the write.
        """
        body = {"entries": [client_entry(change) for change in changes], "atomic": atomic}
        return call("POST", f"{self._base}/clients:alter", terms, json=body, keyed=True)
