"""``confplane apply --propose``: the plan of a manifest as one change request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.client import AsyncConfplane


async def propose_plan(client: AsyncConfplane, plan: Mapping[str, Any], terms: Mapping[str, Any]) -> dict[str, Any]:
    """Propose the changes of a plan as one request, and return it in the API's form.

    Args:
        client: The client.
        plan: The plan.
        terms: The times, the reason and the ticket of the request.

    Raises:
        InvalidRequestError: The plan sets or removes a secret, whose values plans do not have.
    """
    edits: Any = [_edit(each) for each in plan["changes"] if each["diff"]]
    return dict((await client.change_requests.propose(edits, **terms)).body)


def _edit(change: Mapping[str, Any]) -> dict[str, Any]:
    for item in change["diff"]:
        if item.get("secret"):
            raise InvalidRequestError(
                f"{change['id']}: {item['key']} is a secret, which a plan does not show. Propose it with `confplane set"
                " --propose`, and the manifest without it"
            )
    ops = [
        {"key": item["key"], "op": "DELETE"} if item["after"] is None else {"key": item["key"], "value": item["after"]}
        for item in change["diff"]
    ]
    return {"facet": change["facet"], "id": change["id"], "ops": ops}
