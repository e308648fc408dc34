"""A client for tests that name a facet and send any body, valid or not.

Example::

    async with ConfplaneClient("http://127.0.0.1:8080", token=token, cluster="default") as client:
        await client.put("client-quotas", Entity.of(user="alice"), {"producer_byte_rate": 1048576})
        answer = await client.get("client-quotas", Entity.of(user="alice"))
        print(answer.body, answer.etag, answer.revision)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from confplane.client.asynchronous import AsyncConfplane
from confplane.client.core.calls import ApiCall
from confplane.client.core.pages import AsyncPages, Paged
from confplane.client.families.bodies import Change, ClientChange

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from confplane.client.core.calls import Answer
    from confplane.client.tokens import Token
    from confplane.domain.entities import Entity


class ConfplaneClient(AsyncConfplane):
    """An :class:`~confplane.client.asynchronous.AsyncConfplane` with untyped bodies, by default without retries."""

    def __init__(self, url: str, *, token: Token | None, tries: int = 1, **options: Any) -> None:
        super().__init__(url, token=token, tries=tries, **options)

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        read: bool = False,
    ) -> Answer[Any]:
        """Send one request.

        Args:
            method: The HTTP method.
            path: The path below the cluster, a method of the cluster such as ``:freeze``, or an absolute path.
            json: The body.
            params: The query.
            headers: Further headers.
            read: A POST that changes nothing, which may be repeated.

        Raises:
            ProblemError: The service answered with an error.
            ConnectionFailedError: No response was received.
            ClientError: The token can't be read, or the response is not JSON.
        """
        repeatable = read or method == "GET" or "Idempotency-Key" in (headers or {})
        return await self._sender.one(ApiCall(method, self._url(path), json, params or {}, headers or {}, repeatable))

    async def get(
        self,
        facet: str,
        entity: Entity | str,
        *,
        if_none_match: str | None = None,
        full: bool = False,
        at: str | None = None,
        **fresh: Any,
    ) -> Answer[Any]:
        """Read the declared content of an entity, now or ``at`` a revision or time (RFC 3339) of the past."""
        return await self.resources(facet).get.if_none_match(if_none_match, entity, full=full, at=at, **fresh)

    async def effective(self, facet: str, entity: Entity | str, **fresh: Any) -> Answer[Any]:
        """Read the effective values of an entity."""
        return await self.resources(facet).effective(entity, **fresh)

    async def diff(self, facet: str, entity: Entity | str, *, before: str, after: str | None = None) -> Answer[Any]:
        """Read the keys that differ between two moments, each a revision or a time; ``after`` None is now."""
        return await self.resources(facet).diff(entity, before=before, after=after)

    def history(self, facet: str, entity: Entity | str) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the changes of an entity, newest first."""
        return aiter(cast("AsyncPages[Any, dict[str, Any]]", self.resources(facet).history(entity)))

    async def put(self, facet: str, entity: Entity | str, values: Mapping[str, Any], **terms: Any) -> Answer[Any]:
        """Replace all keys of a facet."""
        return await self.resources(facet).put(entity, values, **terms)

    async def create(self, facet: str, entity: Entity | str, values: Mapping[str, Any], **terms: Any) -> Answer[Any]:
        """Create an entity's content; equal existing content is no error."""
        return await self.resources(facet).create(entity, values, **terms)

    async def delete(self, facet: str, entity: Entity | str, **terms: Any) -> Answer[Any]:
        """Remove all keys of a facet."""
        return await self.resources(facet).delete(entity, **terms)

    async def revert(
        self, facet: str, entity: Entity | str, to: int | str, *, force: bool = False, **terms: Any
    ) -> Answer[Any]:
        """Give an entity the keys of a facet that it had at a moment."""
        return await self.resources(facet).revert(entity, to, force=force, **terms)

    def items(self, path: str, **filters: str) -> AsyncIterator[dict[str, Any]]:
        """Iterate over all items of a list, page by page (``client-quotas``, ``audit``, ``/v1/clusters``)."""
        return aiter(self._list(path, filters))

    def pages(self, path: str, **filters: str) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the pages of a list, for members next to the items, such as ``skipped``."""
        return self._list(path, filters).pages()

    async def describe(
        self,
        facet: str,
        components: Sequence[Mapping[str, Any]] = (),
        *,
        strict: bool = False,
        **members: Any,
    ) -> Answer[Any]:
        """Describe by a filter; ``members`` are further members of the body, e.g. ``resolveEntity=True``."""
        body = {"components": list(components), "strict": strict, **members}
        return await self.request("POST", f"{facet}:describe", json=body, read=True)

    async def alter(
        self, facet: str, entries: Sequence[tuple[Entity, Mapping[str, Any]]], *, atomic: bool = False, **terms: Any
    ) -> Answer[Any]:
        """Alter entities: key to value, None to remove."""
        changes: list[Change[Any]] = [Change(entity, values) for entity, values in entries]
        if facet == self.client_quotas.facet:
            return await self.client_quotas.alter(changes, atomic=atomic, **terms)
        return await self.client_configs.alter(changes, atomic=atomic, **terms)

    async def alter_clients(
        self,
        entries: Sequence[tuple[Entity, Mapping[str, Any], Mapping[str, Any]]],
        *,
        atomic: bool = False,
        **terms: Any,
    ) -> Answer[Any]:
        """Alter quotas and client configs, those of an entity in one change: key to value, None to remove."""
        changes = [ClientChange(*entry) for entry in entries]
        return await self.clients.alter(changes, atomic=atomic, **terms)

    async def alter_configs(
        self,
        entries: Sequence[tuple[Entity, Mapping[str, str | None]]],
        *,
        etag: str | None = None,
        atomic: bool = False,
        **terms: Any,
    ) -> Answer[Any]:
        """Alter configs of topics, brokers, groups and subscriptions: key to value, None to remove."""
        changes: list[Change[str]] = [Change(entity, values, etag) for entity, values in entries]
        return await self.configs.alter(changes, atomic=atomic, **terms)

    async def revert_changes(self, selection: Mapping[str, str], **terms: Any) -> Answer[Any]:
        """Set the keys that changes touched to their previous values."""
        return await self.audit.revert(selection, **terms)

    def _list(self, path: str, filters: Mapping[str, str]) -> AsyncPages[dict[str, Any], dict[str, Any]]:
        return AsyncPages(Paged(ApiCall("GET", self._url(path), params=filters, repeatable=True)), self._sender.one)

    def _url(self, path: str) -> str:
        if path.startswith("/"):
            return path
        return f"{self._base}{path}" if path.startswith(":") else f"{self._base}/{path}"
