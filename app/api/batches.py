"""Answers to requests about several entities: one result for each, and one status for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from app.api import problems, views
from app.api.responses import json_response
from app.domain.errors import BodyTooLargeError, NotAttemptedError
from app.services.pace import in_slices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from app.domain.errors import ConfplaneError
    from app.services.changes.edits import EditResult
    from app.services.collections import Collection


MAX_ANSWER: Final = 128 * 1024 * 1024
"""Bytes of a describe of named entities: each may be described at its largest, and as often as it is named."""


def grown(size: int, rendered: bytes) -> int:
    """Return the size of an answer with one more result.

    Raises:
        BodyTooLargeError: The size is above the bound.
    """
    size += len(rendered)
    if size > MAX_ANSWER:
        raise BodyTooLargeError(
            f"The answer would be larger than {MAX_ANSWER} bytes; ask for fewer of them, or for fewer of their keys"
        )
    return size


async def altered(
    request: Request,
    collection: Collection,
    results: Sequence[EditResult],
    named: Iterable[Mapping[str, Any]],
    *,
    member: str,
) -> Response:
    """Answer an alter.

    Args:
        request: The request.
        collection: The facet that was altered.
        results: The results of the entities.
        named: The members that name each entity, as in the request: they also identify an entity that could not be
            formed.
        member: The member of the answer that holds the results.
    """
    errors = [result.error for result in results]
    # Rendered one by one: together they may be megabytes.
    rendered = await in_slices(
        lambda pair: orjson.Fragment(orjson.dumps(views.altered(collection, *pair))), zip(results, named, strict=True)
    )
    body = {
        "throttleTimeMs": 0,
        "failed": sum(error is not None for error in errors),
        member: rendered,
    }
    revision = max((result.revision or 0 for result in results), default=0)
    changes = {result.change_id for result in results if result.change_id is not None}
    headers = {"Confplane-Change-Id": changes.pop()} if len(changes) == 1 else None
    return answered(request, body, errors, headers=headers, revision=revision)


def answered(
    request: Request,
    body: dict[str, Any],
    errors: Sequence[ConfplaneError | None],
    *,
    headers: Mapping[str, str] | None = None,
    revision: int | None = None,
) -> Response:
    """Answer 200 when all results are good, 207 when some are, and else the problem of the first, the results inside.

    Args:
        request: The request.
        body: The answer, with all results.
        errors: The error of each result, None where it is good.
        headers: More headers, where any result is good.
        revision: The revision of a write.
    """
    failed = [error for error in errors if error is not None]
    if failed and len(failed) == len(errors):
        # The error of the offender, not one that merely follows from it.
        first = next((error for error in failed if not isinstance(error, NotAttemptedError)), failed[0])
        return problems.respond(request, first, **body)
    return json_response(request, body, status=207 if failed else 200, headers=headers, revision=revision)
