"""Operations that are defined once, for both the blocking and the asynchronous client.

A family is a class with the operations on one kind of resource. Each of its methods describes a request, a list or
several steps, and sends nothing. A decorator of this module makes the method that users call::

    class Clusters(Family[S]):
        @operation
        def get(self, cluster: str) -> Call[ClusterDetails]: ...

    Clusters(BlockingSender(...)).get("payments")  # an Answer[ClusterDetails]
    await Clusters(AsyncSender(...)).get("payments")  # the same

Type checkers and editors also see the parameters of the method.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from confplane.client.core.calls import Answer, ApiCall, segment, with_etag
from confplane.client.core.pages import AsyncPages, Paged, Pages
from confplane.client.core.senders import AsyncSender, BlockingSender, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from typing_extensions import Self

P = ParamSpec("P")
S = TypeVar("S", bound=BlockingSender | AsyncSender)
"""The sender."""
T = TypeVar("T")
PageT = TypeVar("PageT")
ItemT = TypeVar("ItemT")


class Family(Generic[S]):
    """Operations on one kind of resource.

    Args:
        sender: The sender.
        cluster: Name of the cluster.
    """

    def __init__(self, sender: S, cluster: str) -> None:
        self._sender = sender
        self._base = f"/v1/clusters/{segment(cluster)}"


class _OperationDescriptor(Generic[P, T]):
    """A method that describes a request. It is a descriptor, so that its type depends on the family's sender."""

    def __init__(self, describe: Callable[Concatenate[Any, P], T]) -> None:
        self.describe = describe
        self.__doc__ = describe.__doc__

    def _bound(self, family: Any, made: Callable[[T], Any]) -> Any:
        @functools.wraps(self.describe)
        def send(*args: P.args, **kwargs: P.kwargs) -> Any:
            return made(self.describe(family, *args, **kwargs))

        return send


class operation(_OperationDescriptor[P, ApiCall[T]]):  # noqa: N801 - a decorator
    """One request."""

    @overload
    def __get__(self, family: None, owner: object = None) -> Self: ...
    @overload
    def __get__(self, family: Family[BlockingSender], owner: object = None) -> Callable[P, Answer[T]]: ...
    @overload
    def __get__(
        self, family: Family[AsyncSender], owner: object = None
    ) -> Callable[P, Coroutine[Any, Any, Answer[T]]]: ...
    def __get__(self, family: Any, owner: object = None) -> Any:
        """Return the method that sends, or the description if accessed on the class."""
        if family is None:
            return self
        return self._bound(family, family._sender.one)  # noqa: SLF001 - the descriptor is part of the family


class tagged(_OperationDescriptor[P, ApiCall[T]]):  # noqa: N801 - a decorator
    """One read whose answer has an ETag."""

    @overload
    def __get__(self, family: None, owner: object = None) -> Self: ...
    @overload
    def __get__(self, family: Family[BlockingSender], owner: object = None) -> TaggedRead[P, T]: ...
    @overload
    def __get__(self, family: Family[AsyncSender], owner: object = None) -> AsyncTaggedRead[P, T]: ...
    def __get__(self, family: Any, owner: object = None) -> Any:
        """Return the method that sends, or the description if accessed on the class."""
        if family is None:
            return self
        sender = family._sender  # noqa: SLF001 - as above
        kind = TaggedRead if isinstance(sender, BlockingSender) else AsyncTaggedRead
        return kind(functools.partial(self.describe, family), sender)


class TaggedRead(Generic[P, T]):
    """A method that reads, and can read again only if something changed."""

    def __init__(self, describe: Callable[P, ApiCall[T]], sender: BlockingSender) -> None:
        self._describe, self._sender = describe, sender

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Answer[T]:
        """Read."""
        return self._sender.one(self._describe(*args, **kwargs))

    def if_none_match(self, etag: str | None, *args: P.args, **kwargs: P.kwargs) -> Answer[T | None]:
        """Read unless the ETag is still this one. In that case the status is 304 and the body None."""
        return self._sender.one(with_etag(self._describe(*args, **kwargs), etag))


class AsyncTaggedRead(Generic[P, T]):
    """A method that reads, and can read again only if something changed."""

    def __init__(self, describe: Callable[P, ApiCall[T]], sender: AsyncSender) -> None:
        self._describe, self._sender = describe, sender

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Answer[T]:
        """Read."""
        return await self._sender.one(self._describe(*args, **kwargs))

    async def if_none_match(self, etag: str | None, *args: P.args, **kwargs: P.kwargs) -> Answer[T | None]:
        """Read unless the ETag is still this one. In that case the status is 304 and the body None."""
        return await self._sender.one(with_etag(self._describe(*args, **kwargs), etag))


class listing(_OperationDescriptor[P, Paged[PageT, ItemT]], Generic[P, PageT, ItemT]):  # noqa: N801 - a decorator
    """A list, read page by page."""

    @overload
    def __get__(self, family: None, owner: object = None) -> Self: ...
    @overload
    def __get__(self, family: Family[BlockingSender], owner: object = None) -> Callable[P, Pages[PageT, ItemT]]: ...
    @overload
    def __get__(self, family: Family[AsyncSender], owner: object = None) -> Callable[P, AsyncPages[PageT, ItemT]]: ...
    def __get__(self, family: Any, owner: object = None) -> Any:
        """Return the method that makes the iterator, or the description if accessed on the class."""
        if family is None:
            return self
        sender = family._sender  # noqa: SLF001 - as above
        kind = Pages if isinstance(sender, BlockingSender) else AsyncPages
        return self._bound(family, lambda paged: kind(paged, sender.one))


class procedure(_OperationDescriptor[P, Steps[T]]):  # noqa: N801 - a decorator
    """Several requests, each of which depends on the answers to those before."""

    @overload
    def __get__(self, family: None, owner: object = None) -> Self: ...
    @overload
    def __get__(self, family: Family[BlockingSender], owner: object = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, family: Family[AsyncSender], owner: object = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, family: Any, owner: object = None) -> Any:
        """Return the method that sends, or the description if accessed on the class."""
        if family is None:
            return self
        return self._bound(family, family._sender.all)  # noqa: SLF001 - as above
