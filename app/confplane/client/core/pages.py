"""Lists, read page by page while they are iterated over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from http import HTTPStatus
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from confplane.client.core.answers import member

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from confplane.client.core.calls import Answer, ApiCall

PageT = TypeVar("PageT")
ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Paged(Generic[PageT, ItemT]):
    """A list whose pages have the form ``PageT`` with items of the form ``ItemT``."""

    first: ApiCall[PageT]
    """The call of the first page, or of the page at which the list continues."""

    def page(self, token: str | None) -> ApiCall[PageT]:
        """Return the call of the page of a token; None for the first page.

        Only the first may find the list unchanged.
        """
        if token is None:
            return self.first
        headers = {name: value for name, value in self.first.headers.items() if name != "If-None-Match"}
        return replace(self.first, params={**self.first.params, "pageToken": token}, headers=headers)


class _Position:
    """The place that an iteration has reached."""

    def __init__(self) -> None:
        self.next_token: str | None = None
        """``page_token`` of the page after the last that was read; None before the first and after the last page."""
        self.etag: str | None = None
        """The ETag of the last page that was read; None if the list has no ETags."""
        self.unchanged = False
        """True if the list still has the ETag of its ``if_none_match``. In that case no item was read."""

    def _read(self, call: ApiCall[Any], answer: Answer[Any]) -> bool:
        """Store the token of a page, and return True if another page follows."""
        self.etag, self.unchanged = answer.etag, answer.status == HTTPStatus.NOT_MODIFIED
        if not self.unchanged:
            member(call, answer, "items", list)
        self.next_token = None if self.unchanged else member(call, answer, "nextPageToken", (str, NoneType))
        return self.next_token is not None


class Pages(_Position, Generic[PageT, ItemT]):
    """The items of a list. Each page is read when it is reached. Supports one iteration."""

    def __init__(self, paged: Paged[PageT, ItemT], send: Callable[[ApiCall[PageT]], Answer[PageT]]) -> None:
        super().__init__()
        self._paged, self._send = paged, send

    def pages(self) -> Iterator[PageT]:
        """Iterate over the pages, for members other than the items, such as ``skipped``."""
        more = True
        while more:
            call = self._paged.page(self.next_token)
            answer = self._send(call)
            more = self._read(call, answer)
            if not self.unchanged:
                yield answer.body

    def __iter__(self) -> Iterator[ItemT]:
        for page in self.pages():
            yield from cast("dict[str, list[ItemT]]", page)["items"]


class AsyncPages(_Position, Generic[PageT, ItemT]):
    """The items of a list. Each page is read when it is reached. Supports one iteration."""

    def __init__(
        self, paged: Paged[PageT, ItemT], send: Callable[[ApiCall[PageT]], Coroutine[Any, Any, Answer[PageT]]]
    ) -> None:
        super().__init__()
        self._paged, self._send = paged, send

    async def pages(self) -> AsyncIterator[PageT]:
        """Iterate over the pages, for members other than the items, such as ``skipped``."""
        more = True
        while more:
            call = self._paged.page(self.next_token)
            answer = await self._send(call)
            more = self._read(call, answer)
            if not self.unchanged:
                yield answer.body

    async def __aiter__(self) -> AsyncIterator[ItemT]:
        async for page in self.pages():
            for item in cast("dict[str, list[ItemT]]", page)["items"]:
                yield item
