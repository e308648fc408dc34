"""Answers to requests about several entities: one result for each, and one status for all."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from confplane.api import kraft, problems
from confplane.api.responses import json_response, number, written_revision
from confplane.api.routing.bounded import hold
from confplane.domain.errors import OutcomeUnknownError, PreconditionFailedError
from confplane.services.changes.edits import json_of, offender
from confplane.services.cooperative_yielding import in_slices
from confplane.services.limits import LimitClass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from confplane.api.dependencies import Call
    from confplane.api.models import AlterModel
    from confplane.api.responses import Headers
    from confplane.domain.errors import ConfplaneError
    from confplane.services.changes.alter import AlterService, Entry
    from confplane.services.changes.edits import EditResult, EntryResult
    from confplane.services.cluster_facet import ClusterFacet


T = TypeVar("T")


class RenderedResults:
    """The results of a describe of named entities, rendered one by one: together they may be tens of megabytes.

    Args:
        request: The request. The results count as bytes of its response.

    Attributes:
        errors: The error of each result, None if it succeeded.
    """

    def __init__(self, request: Request) -> None:
        self.errors: list[ConfplaneError | None] = []
        self._request = request
        self._rendered: list[bytes] = []

    def add(self, result: Mapping[str, Any], error: ConfplaneError | None) -> None:
        """Add a result.

        Raises:
            ConfplaneError: As :func:`confplane.api.routing.bounded.hold`.
        """
        rendered = orjson.dumps(result)
        hold(self._request, len(rendered))
        self._rendered.append(rendered)
        self.errors.append(error)

    def fragments(self) -> list[orjson.Fragment]:
        """Return the results, to be rendered as members of the response; forget them."""
        found, self._rendered = self._rendered, []
        return [orjson.Fragment(each) for each in found]


async def alter(
    call: Call,
    service: AlterService,
    body: AlterModel,
    entries: Sequence[T],
    *,
    entry: Callable[[int, T], Entry],
    echo: Callable[[T], Mapping[str, Any]],
    diff: Callable[[Entry, EntryResult], Any],
    member: str,
) -> Response:
    """Alter several entities, and answer with one result for each.

    Args:
        call: The request.
        service: Alters the entities.
        body: The body.
        entries: The entries of the body.
        entry: Makes the edits of an entry at an index; an edit that can't be made has its result instead.
        echo: Returns the members that name an entry's entity, as the request gave them: an entity that can't be formed
            is also identified by them.
        diff: Returns the differences that the edits of an entry make.
        member: The member of the answer with the results.
    """
    call.charge(LimitClass.WRITE, len(entries) - 1)
    made = await in_slices(lambda item: entry(*item), enumerate(entries))
    validate_only = call.validate_only or body.validate_only
    results = await service.alter_entries(made, call.caller, validate_only=validate_only, atomic=body.atomic)
    revision = written_revision(call.cluster.store, results)
    parts = zip(chain(*made), chain.from_iterable(result.results for result in results), strict=True)
    waited = await kraft.wait_for_status(call, parts)

    def rendered_entry(each: tuple[Entry, EntryResult, T]) -> orjson.Fragment:
        altered_by, result, given = each
        named = {**echo(given), **waited.get(result.results[0].edit.entity.id, {})}
        return orjson.Fragment(orjson.dumps(altered_entry(result, named, diff(altered_by, result))))

    # Rendered one by one: together they may be megabytes.
    rendered = await in_slices(rendered_entry, zip(made, results, entries, strict=True))
    return alter_response(call, results, {member: rendered}, revision)


def alter_response(
    call: Call, results: Sequence[EntryResult], members: Mapping[str, Any], revision: int | None
) -> Response:
    """Answer an alter like :func:`change_response`, with throttle time, number of failures and these members."""
    errors = [result.error for result in results]
    failed = sum(error is not None for error in errors)
    body = {"throttleTimeMs": call.throttle_ms(LimitClass.WRITE), "failed": failed, **members}
    return change_response(call.request, body, errors, results, revision)


def change_response(
    request: Request,
    body: dict[str, Any],
    errors: Sequence[ConfplaneError | None],
    results: Sequence[EntryResult],
    revision: int | None,
) -> Response:
    """Answer an alter like :func:`multi_status_response`, with its change id if it has one.

    Args:
        request: The request.
        body: The answer, with all results.
        errors: The error of each result, None if it succeeded.
        results: The results of the entries that were run.
        revision: As of :func:`~confplane.api.responses.written_revision`.
    """
    changes = {result.change_id for result in results if result.change_id is not None}
    headers = {"Confplane-Change-Id": changes.pop()} if len(changes) == 1 else None
    return multi_status_response(request, body, errors, headers=headers, revision=revision)


def multi_status_response(
    request: Request,
    body: dict[str, Any],
    errors: Sequence[ConfplaneError | None],
    *,
    headers: Mapping[str, str] | None = None,
    revision: int | None = None,
    consistency: Headers | None = None,
) -> Response:
    """Answer 200 if all results succeeded, 207 if some did, and otherwise the problem of the first with all results.

    Args:
        request: The request.
        body: The answer, with all results.
        errors: The error of each result, None if it succeeded.
        headers: More headers, if any result succeeded.
        revision: The revision of a write.
        consistency: As of :func:`~confplane.api.responses.json_response`.
    """
    first = offender(errors)
    if first is not None and None not in errors:
        return problems.respond(request, first, written_at=revision, consistency=consistency, **body)
    status = 200 if first is None else 207
    return json_response(request, body, status=status, headers=headers, revision=revision, consistency=consistency)


def error_members(error: ConfplaneError | None) -> dict[str, Any]:
    """Return the members with the error of a result among several, or of its success."""
    return {
        "errorCode": 0 if error is None else int(error.code),
        "errorName": "NONE" if error is None else error.code.name,
        "errorMessage": None if error is None else error.detail,
    }


def failure_members(error: ConfplaneError) -> dict[str, Any]:
    """Return the members that only a failed result of an alter has: the outcome, and if a retry may succeed."""
    return {"retriable": error.retriable, "outcome": None if error.outcome is None else error.outcome.value}


def altered_entry(result: EntryResult, named: Mapping[str, Any], differences: Any) -> dict[str, Any]:
    """Return one result of an alter; ``named`` are the members that name its entity."""
    error = result.error
    entry: dict[str, Any] = {
        **error_members(error),
        **named,
        "changeId": result.change_id,
        "revision": None if result.revision is None else str(result.revision),
        "diff": differences,
        "warnings": list(result.warnings),
    }
    if error is not None:
        entry |= failure_members(error)
        entry["errors"] = problems.parts(error)
        if isinstance(error, PreconditionFailedError):
            entry["etag"] = error.etag
        if isinstance(error, OutcomeUnknownError):
            entry["changeId"] = error.change_id
    return entry


def diff(cluster_facet: ClusterFacet, result: EditResult) -> list[dict[str, Any]]:
    """Return the differences that an edit makes; a secret's values are null, and marked."""
    entity = result.edit.entity
    return [
        {
            "key": item.key,
            "before": number(json_of(cluster_facet, entity, item.key, item.before)),
            "after": number(json_of(cluster_facet, entity, item.key, item.after)),
            **({"secret": True} if item.secret else {}),
        }
        for item in result.diff
    ]
