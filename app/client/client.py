"""An asynchronous client of one cluster's configs.

Example::

    async with ConfplaneClient("http://127.0.0.1:8080", token=token, cluster="default") as client:
        await client.put("client-quotas", Entity.of(user="alice"), {"producer_byte_rate": 1048576})
        answer = await client.get("client-quotas", Entity.of(user="alice"))
        print(answer.body, answer.etag, answer.revision)
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from app.client.errors import ClientError, ConnectionFailedError, ProblemError
from app.client.tokens import authorization
from app.domain.entities import Entity

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping, Sequence
    from types import TracebackType

    from app.client.tokens import Token

_MEMBERS = {"client-quotas": "quotas", "client-configs": "configs", "configs": "configs"}
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer."""

    status: int
    body: Any
    """Parsed JSON; None for 304."""
    revision: int | None
    """The revision, from ``Confplane-Revision``."""
    change_id: str | None
    etag: str | None
    stale_ms: int | None
    """Milliseconds since a mirror without its session was current; None while it is current."""
    replayed: bool = False
    """True for the answer to an earlier request with the same idempotency key."""


class ConfplaneClient:
    """Speaks to one service about one cluster. Not bound to a thread; bound to an event loop once used.

    With ``tries`` above 1 the client repeats reads, and writes that have an ``idempotency_key``, after a failure that
    may pass: no answer, or an answer that is retriable. It pauses as ``Retry-After`` says, 10 s at most, and otherwise
    for growing times with a random part. A write without a key is sent once. A key is new for each write
    (``str(uuid.uuid4())``): the write is done once, and its first answer is given again.

    Args:
        url: Base URL, without ``/v1``.
        token: Bearer token, or the file or function that gives it, asked before each request; None to send none.
        cluster: Name of the cluster.
        timeout_s: Seconds for each request.
        tries: How often a request may be sent.
        verify: The TLS context; True for the authorities of the system.
        transport: Another httpx transport, e.g. ``httpx.ASGITransport`` in tests.
    """

    def __init__(
        self,
        url: str,
        *,
        token: Token | None,
        cluster: str = "default",
        timeout_s: float = 30.0,
        tries: int = 1,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.cluster = cluster
        self._base = f"/v1/clusters/{cluster}"
        self._token = token
        self._tries = tries
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=timeout_s,
            # Redirects are not followed, so plain HTTP stays plain; to load all authorities takes a while.
            verify=False if httpx.URL(url).scheme == "http" else verify,
            transport=transport,
            trust_env=False,
            limits=httpx.Limits(max_connections=1024, max_keepalive_connections=1024),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        read: bool = False,
    ) -> Answer:
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
            ConnectionFailedError: No answer came.
            ClientError: There is no token where it is to be read, or the answer is no JSON.
        """
        url = path if path.startswith(("/", ":")) else f"/{path}"
        url = url if path.startswith("/") else f"{self._base}{url}"
        repeatable = read or method == "GET" or "Idempotency-Key" in (headers or {})
        for left in reversed(range(self._tries if repeatable else 1)):
            try:
                return await self._sent(method, url, json=json, params=params, headers=headers)
            except ClientError as error:
                if not left or not error.retriable:
                    raise
                await asyncio.sleep(_pause_s(self._tries - left, error.retry_after_s))
        raise AssertionError("tries is below 1")

    async def _sent(
        self, method: str, url: str, *, json: Any, params: Mapping[str, str] | None, headers: Mapping[str, str] | None
    ) -> Answer:
        sent = {} if self._token is None else {"Authorization": await authorization(self._token)}
        sent.update(headers or {})
        try:
            response = await self._http.request(method, url, json=json, params=params, headers=sent)
        except httpx.TransportError as error:
            unsent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
            raise ConnectionFailedError(
                f"{method} {url}: {type(error).__name__}: {error}", may_be_applied=method != "GET" and not unsent
            ) from error
        if response.is_error:
            raise _problem(response)
        try:
            body = response.json() if response.content else None
        except ValueError as error:
            raise ClientError(f"{method} {url}: the answer is no JSON; is this the URL of a Confplane?") from error
        return Answer(
            status=response.status_code,
            body=body,
            revision=_number(response.headers.get("Confplane-Revision")),
            change_id=response.headers.get("Confplane-Change-Id"),
            etag=response.headers.get("ETag"),
            stale_ms=_number(response.headers.get("Confplane-Stale-Ms")),
            replayed="Idempotency-Replayed" in response.headers,
        )

    # ------------------------------------------------------------ resources

    async def get(
        self,
        facet: str,
        entity: Entity | str,
        *,
        min_revision: int | None = None,
        strong: bool = False,
        if_none_match: str | None = None,
        full: bool = False,
        at: str | None = None,
    ) -> Answer:
        """Read the declared content of an entity, now or ``at`` a revision or time (RFC 3339) of the past."""
        params = _given(consistency="strong" if strong else None, view="full" if full else None, at=at)
        headers = _headers(min_revision=min_revision, if_none_match=if_none_match)
        return await self.request("GET", f"{facet}/{_id(entity)}", params=params or None, headers=headers)

    async def effective(
        self, facet: str, entity: Entity | str, *, min_revision: int | None = None, if_none_match: str | None = None
    ) -> Answer:
        """Read the effective values of an entity."""
        headers = _headers(min_revision=min_revision, if_none_match=if_none_match)
        return await self.request("GET", f"{facet}/{_id(entity)}/effective", headers=headers)

    async def diff(self, facet: str, entity: Entity | str, *, before: str, after: str | None = None) -> Answer:
        """Read the keys that differ between two moments, each a revision or a time; ``after`` None is now."""
        params = {"from": before} | _given(to=after)
        return await self.request("GET", f"{facet}/{_id(entity)}/diff", params=params)

    def history(self, facet: str, entity: Entity | str) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the changes of an entity, newest first."""
        return self.items(f"{facet}/{_id(entity)}/history")

    async def put(
        self,
        facet: str,
        entity: Entity | str,
        values: Mapping[str, Any],
        *,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> Answer:
        """Replace all keys of a facet."""
        return await self.request(
            "PUT",
            f"{facet}/{_id(entity)}",
            json={_MEMBERS[facet]: dict(values)},
            headers=_headers(if_match=if_match, idempotency_key=idempotency_key),
        )

    async def create(
        self, facet: str, entity: Entity | str, values: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> Answer:
        """Create an entity's content; equal existing content is no error."""
        return await self.request(
            "POST",
            facet,
            json={"id": _id(entity), _MEMBERS[facet]: dict(values)},
            headers=_headers(idempotency_key=idempotency_key),
        )

    async def delete(
        self, facet: str, entity: Entity | str, *, if_match: str | None = None, idempotency_key: str | None = None
    ) -> Answer:
        """Remove all keys of a facet."""
        return await self.request(
            "DELETE", f"{facet}/{_id(entity)}", headers=_headers(if_match=if_match, idempotency_key=idempotency_key)
        )

    async def items(self, path: str, **filters: str) -> AsyncIterator[dict[str, Any]]:
        """Iterate over all items of a list, page by page (``client-quotas``, ``audit``, ``/v1/clusters``)."""
        async for page in self.pages(path, **filters):
            for item in page["items"]:
                yield item

    async def pages(self, path: str, **filters: str) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the pages of a list, for members beside the items such as ``skipped``."""
        token: str | None = None
        while True:
            params = filters | _given(pageToken=token)
            page = (await self.request("GET", path, params=params)).body
            yield page
            token = page["nextPageToken"]
            if token is None:
                return

    # ------------------------------------------------------------ RPC style

    async def describe(
        self,
        facet: str,
        components: Sequence[Mapping[str, Any]] = (),
        *,
        strict: bool = False,
        min_revision: int | None = None,
        **members: Any,
    ) -> Answer:
        """Describe by a filter; ``members`` are further members of the body, e.g. ``resolveEntity=True``."""
        body = {"components": list(components), "strict": strict, **members}
        return await self.request(
            "POST", f"{facet}:describe", json=body, headers=_headers(min_revision=min_revision), read=True
        )

    async def alter(
        self,
        facet: str,
        entries: Sequence[tuple[Entity, Mapping[str, Any]]],
        *,
        validate_only: bool = False,
        atomic: bool = False,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> Answer:
        """Alter entities: key to value, None to remove."""
        body = {
            "entries": [{"entity": _components(entity), "ops": _ops(values)} for entity, values in entries],
            "validateOnly": validate_only,
            "atomic": atomic,
        }
        return await self._altered(f"{facet}:alter", body, reason=reason, idempotency_key=idempotency_key)

    async def alter_clients(
        self,
        entries: Sequence[tuple[Entity, Mapping[str, Any], Mapping[str, Any]]],
        *,
        quotas_etag: str | None = None,
        configs_etag: str | None = None,
        validate_only: bool = False,
        atomic: bool = False,
        reason: str | None = None,
        ticket: str | None = None,
        idempotency_key: str | None = None,
    ) -> Answer:
        """Alter quotas and client configs of entities, those of an entity in one change: key to value, None to remove.

        Args:
            entries: Entity, quotas, client configs.
            quotas_etag: The ETag that the quotas of each entry must have.
            configs_etag: The ETag that the client configs of each entry must have.
            validate_only: Go the whole way up to the write, and write nothing.
            atomic: All entries in one change.
            reason: The reason, for the trail.
            ticket: The id of a ticket, for the trail.
            idempotency_key: See the class.
        """
        etags = _given(quotasEtag=quotas_etag, configsEtag=configs_etag)
        body = {
            "entries": [
                {"entity": _components(entity), "quotas": _ops(quotas), "configs": _ops(configs), **etags}
                for entity, quotas, configs in entries
            ],
            "validateOnly": validate_only,
            "atomic": atomic,
        }
        return await self._altered("clients:alter", body, reason=reason, ticket=ticket, idempotency_key=idempotency_key)

    async def alter_configs(
        self,
        entries: Sequence[tuple[Entity, Mapping[str, str | None]]],
        *,
        etag: str | None = None,
        validate_only: bool = False,
        atomic: bool = False,
        reason: str | None = None,
        ticket: str | None = None,
        idempotency_key: str | None = None,
    ) -> Answer:
        """Alter configs of topics, brokers, groups and subscriptions: key to value, None to remove.

        Args:
            entries: Entity, configs.
            etag: The ETag that each entry must have.
            validate_only: Go the whole way up to the write, and write nothing.
            atomic: All entries in one change.
            reason: The reason, for the trail.
            ticket: The id of a ticket, for the trail.
            idempotency_key: See the class.
        """
        resources = [
            {**_resource(entity), "configs": _incremental_ops(values), **_given(etag=etag)}
            for entity, values in entries
        ]
        body = {"resources": resources, "validateOnly": validate_only, "atomic": atomic}
        return await self._altered(
            "configs:incrementalAlter", body, reason=reason, ticket=ticket, idempotency_key=idempotency_key
        )

    # ------------------------------------------------------------ reverts

    async def revert_changes(
        self,
        selection: Mapping[str, str],
        *,
        keys: Sequence[str] = (),
        force: bool = False,
        validate_only: bool = False,
        reason: str | None = None,
        ticket: str | None = None,
        idempotency_key: str | None = None,
    ) -> Answer:
        """Set the keys that changes touched to their values before.

        Args:
            selection: One of ``{"changeId": …}``, ``{"requestId": …}``, and ``{"principal": …, "since": …}``, the
                last with or without ``until``; times are RFC 3339.
            keys: Only these keys; none: all.
            force: Also over later changes of the same keys.
            validate_only: Go the whole way up to the write, and write nothing.
            reason: The reason, for the trail.
            ticket: The id of a ticket, for the trail.
            idempotency_key: See the class.
        """
        body = {**selection, **({"keys": list(keys)} if keys else {}), "force": force, "validateOnly": validate_only}
        return await self._altered("audit:revert", body, reason=reason, ticket=ticket, idempotency_key=idempotency_key)

    async def revert(  # noqa: PLR0913 - one argument a member of the request
        self,
        facet: str,
        entity: Entity | str,
        to: int | str,
        *,
        force: bool = False,
        validate_only: bool = False,
        if_match: str | None = None,
        reason: str | None = None,
        ticket: str | None = None,
        idempotency_key: str | None = None,
    ) -> Answer:
        """Give an entity the keys of a facet that it had at a moment.

        Args:
            facet: The facet.
            entity: The entity.
            to: A revision, or a time as RFC 3339.
            force: Also where others change the entity meanwhile.
            validate_only: Go the whole way up to the write, and write nothing.
            if_match: The ETag of the content that is replaced.
            reason: The reason, for the trail.
            ticket: The id of a ticket, for the trail.
            idempotency_key: See the class.
        """
        body = {"to": str(to), "force": force, "validateOnly": validate_only}
        return await self._altered(
            f"{facet}/{_id(entity)}:revert",
            body,
            reason=reason,
            ticket=ticket,
            if_match=if_match,
            idempotency_key=idempotency_key,
        )

    async def _altered(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        reason: str | None,
        ticket: str | None = None,
        if_match: str | None = None,
        idempotency_key: str | None,
    ) -> Answer:
        """Send an alter with the texts that the trail keeps."""
        params = _given(reason=reason, ticket=ticket)
        headers = _headers(if_match=if_match, idempotency_key=idempotency_key)
        return await self.request("POST", path, json=body, params=params, headers=headers)


def _given(**members: str | None) -> dict[str, str]:
    return {name: value for name, value in members.items() if value is not None}


def _components(entity: Entity) -> list[dict[str, str | None]]:
    return [{"entityType": kind, "entityName": name} for kind, name in entity.components]


def _ops(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "remove": True} if value is None else {"key": key, "value": value} for key, value in values.items()
    ]


def _resource(entity: Entity) -> dict[str, str]:
    """Return the type and the name of an entity in Kafka's terms; '' is the default of all brokers."""
    [(kind, name)] = entity.components
    return {"resourceType": kind.replace("-", "_").upper(), "resourceName": name or ""}


def _incremental_ops(values: Mapping[str, str | None]) -> list[dict[str, str]]:
    return [
        {"name": key, "configOperation": "DELETE"}
        if value is None
        else {"name": key, "configOperation": "SET", "value": value}
        for key, value in values.items()
    ]


def _pause_s(tried: int, retry_after_s: float | None) -> float:
    """Return the seconds before the next try; the random part keeps clients apart that failed together."""
    if retry_after_s is not None:
        return min(retry_after_s, _LONGEST_PAUSE_S) * random.uniform(1.0, 1.2)  # noqa: S311 - no secret
    return min(_FIRST_PAUSE_S * (1 << tried), _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)  # noqa: S311 - as above


def _problem(response: httpx.Response) -> ProblemError:
    """Read an error; an answer that is no problem is from a server between us and the service."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        body = {"title": response.reason_phrase, "detail": response.text[:200]}
    retry_after = response.headers.get("Retry-After", "")
    # RFC 9110 also allows a date here, which the service never sends.
    return ProblemError(
        response.status_code, body, retry_after_s=float(retry_after) if retry_after.isdecimal() else None
    )


def _id(entity: Entity | str) -> str:
    return entity.id if isinstance(entity, Entity) else entity


def _headers(
    *,
    min_revision: int | None = None,
    if_match: str | None = None,
    if_none_match: str | None = None,
    idempotency_key: str | None = None,
) -> dict[str, str]:
    given = {
        "Confplane-Min-Revision": None if min_revision is None else str(min_revision),
        "If-Match": if_match,
        "If-None-Match": if_none_match,
        "Idempotency-Key": idempotency_key,
    }
    return _given(**given)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
