"""A repository of tokens or grants, restricted to those that a caller may see and alter: one rule for both.

Each row belongs to a principal. The rights to it are those on the resource ``tokens`` or ``grants`` of that principal.
In addition, a caller sees its own rows. Requests for hidden rows and for absent rows are refused with the same error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from confplane.domain.access.operations import Operation
from confplane.domain.access.ranges import NameRanges, spell, whole
from confplane.domain.errors import NotFoundError
from confplane.services.access_admin import rules
from confplane.services.access_admin.pagination import visible_page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from uuid import UUID

    from confplane.domain.access.operations import ResourceType
    from confplane.services.access import Access
    from confplane.services.access_admin.pagination import ReadPage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AccessRecordKind(Generic[T]):
    """The differences between tokens and grants."""

    resource: ResourceType
    noun: str
    id_of: Callable[[T], UUID]
    principal_of: Callable[[T], str]
    is_own: Callable[[Access, str], bool]
    """Returns True if the rows of a principal are the caller's own."""


class AccessRepository(Generic[T]):
    """The rows of one kind, as far as a caller may see or alter them.

    Args:
        kind: The kind.
        find: Reads one row.
    """

    def __init__(self, kind: AccessRecordKind[T], find: Callable[[UUID], Awaitable[T | None]]) -> None:
        self._kind = kind
        self._find = find
        self._every = NameRanges.of([whole(kind.resource)])

    def require(self, access: Access, operation: Operation, principal: str, pointer: str) -> None:
        """Refuse a caller who lacks an operation on the rows of a principal.

        Raises:
            ForbiddenError: The grant is missing.
        """
        access.require(None, operation, self._spelled(principal), pointer=pointer)

    def require_all(self, access: Access, operation: Operation, rows: Iterable[T]) -> None:
        """Refuse a caller who lacks an operation on one of several rows; the text names no hidden principal.

        Raises:
            ForbiddenError: The grant is missing.
        """
        for row in rows:
            principal = self._kind.principal_of(row)
            if not access.allows(None, operation, self._spelled(principal)):
                access.require(None, operation, self._kind.resource)
                access.require(None, operation, self._spelled(principal))

    def covers_every(self, access: Access, operation: Operation) -> bool:
        """Return True if a caller has an operation on the rows of all principals."""
        return access.allowed(None, operation) >= self._every

    async def page(
        self, read: ReadPage[T], principal: str | None, access: Access, *, page_size: int, after: UUID | None
    ) -> tuple[list[T], UUID | None]:
        """Return a page of the visible rows, oldest first, and the cursor of the next.

        Args:
            read: Reads a page of the principal's rows, or of everybody's.
            principal: Only the rows of this principal; None: of all.
            access: The caller.
            page_size: Most rows.
            after: The cursor.

        Raises:
            InvalidRequestError: The principal is not valid.
            ForbiddenError: A principal is named, and the caller may not see its rows.
        """
        if principal is not None:
            rules.check_principal(principal, "principal")
            if not self._kind.is_own(access, principal):
                self.require(access, Operation.DESCRIBE, principal, "principal")
        if principal is not None or self.covers_every(access, Operation.DESCRIBE):
            return await read(page_size=page_size, after=after)
        return await visible_page(read, lambda row: self._is_visible(access, row), self._kind.id_of, page_size, after)

    async def find(self, row_id: UUID, access: Access) -> T:
        """Return a row that the caller may see.

        Raises:
            NotFoundError: The row does not exist, and the caller may see all.
            ForbiddenError: There is no such row that the caller may see.
        """
        row = await self._find(row_id)
        if row is not None and self._is_visible(access, row):
            return row
        access.require(None, Operation.DESCRIBE, self._kind.resource)
        raise self._none(row_id)

    async def find_alterable(self, row_id: UUID, access: Access) -> T:
        """Return a row that the caller may alter.

        Raises:
            NotFoundError: The row does not exist, and the caller may alter all.
            ForbiddenError: There is no such row that the caller may alter.
        """
        row = await self._find(row_id)
        if row is None or not access.allows(None, Operation.ALTER, self._spelled(self._kind.principal_of(row))):
            access.require(None, Operation.ALTER, self._kind.resource)
            raise self._none(row_id)
        return row

    def _is_visible(self, access: Access, row: T) -> bool:
        principal = self._kind.principal_of(row)
        return self._kind.is_own(access, principal) or access.allows(None, Operation.DESCRIBE, self._spelled(principal))

    def _spelled(self, principal: str) -> str:
        return spell(self._kind.resource, principal)

    def _none(self, row_id: UUID) -> NotFoundError:
        return NotFoundError(f"There is no {self._kind.noun} {row_id}")
