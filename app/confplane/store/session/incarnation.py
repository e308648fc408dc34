"""The gate that writes pass: closed until the connection is known to lead to the store that the trail describes.

A connection may lead to a ZooKeeper that was restored, even within a session: after an election the restored servers
have a higher zxid than this client has seen, and a copy of their files has its session. So each connection is checked
before its first write (services/upkeep/incarnation.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.domain.errors import RestoredStoreError, WriteOutcome
from confplane.services.operator_warnings import OperatorWarning
from confplane.services.ports.trail import FIRST_INCARNATION
from confplane.store.session.session_manager import unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


class IncarnationGate:
    """The gate of one cluster. It is open if nothing checks connections.

    Attributes:
        number: The incarnation of the store.
        connection: The number of the current connection.
        rejected: The reason why the store is taken for a restored one; None if it is not.
    """

    def __init__(self, name: str) -> None:
        self.number = FIRST_INCARNATION
        self.connection = 0
        self.rejected: str | None = None
        self._name = name
        self._checked = 0
        self._check: Callable[[float], Awaitable[None]] | None = None

    def check_connections(self, check: Callable[[float], Awaitable[None]]) -> None:
        """Close the gate on each connection until it was checked; call a function when a write waits for that."""
        self._check = check

    def next_connection(self) -> None:
        """Close the gate: the connection was lost, or there is another one."""
        self.connection += 1

    @property
    def checked(self) -> bool:
        """True if the current connection was checked."""
        return self._check is None or self._checked == self.connection

    @property
    def open(self) -> bool:
        """True if writes may pass."""
        return self.checked and self.rejected is None

    async def enter(self, deadline: float) -> None:
        """Wait for the check of the current connection, and pass.

        Raises:
            RestoredStoreError: The store was restored.
            UnavailableError: A store did not answer by the deadline; nothing was changed.
        """
        if self._check is not None and not self.checked:
            await self._check(deadline)
        self.verify()

    def verify(self) -> None:
        """Pass.

        Raises:
            RestoredStoreError: The store was restored.
            UnavailableError: The connection was not checked yet; nothing was changed.
        """
        if self.rejected is not None:
            raise RestoredStoreError(self._text(self.rejected), outcome=WriteOutcome.NOT_APPLIED)
        if not self.checked:
            raise unavailable(f"Cluster {self._name}: the connection to ZooKeeper is new and not checked yet")

    def accept(self, connection: int, number: int) -> None:
        """Open the gate, if the connection is still the current one."""
        if connection == self.connection:
            self.number, self._checked, self.rejected = number, connection, None

    def reject(self, connection: int, reason: str) -> None:
        """Keep the gate closed, if the connection is still the current one."""
        if connection == self.connection:
            self._checked, self.rejected = connection, reason

    def warnings(self) -> Iterator[OperatorWarning]:
        """Return the warnings for operators."""
        if self.rejected is not None:
            yield OperatorWarning(self._text(self.rejected))

    def _text(self, reason: str) -> str:
        return (
            f"Cluster {self._name}: ZooKeeper was restored to an earlier state, or another one answers: {reason}. Reads"
            ' go on and show its state; nothing is written or recorded. Follow "Restore" in docs/operations.md:'
            f" `confplane adopt-store --cluster {self._name} --reason TEXT` accepts the state as it is"
        )
