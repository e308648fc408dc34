"""Plans and their runs, as the commands on manifests print them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confplane.cli.output import is_json, print_error, print_json, say
from confplane.cli.remote.changes import report_bypass
from confplane.cli.remote.plan_output import print_plan_diff, print_plan_table
from confplane.cli.remote.session import DONE, FAILED, UNKNOWN, refusal_texts
from confplane.client import ProblemError
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.cli.remote.manifests import ManifestFiles
    from confplane.client import AsyncConfplane

PLANNED: Final = 200
"""The result of a plan with changes, which is not an exit code."""
STALE: Final = 201
"""The result of a run of merged files whose plan is out of date."""
_CHANGED: Final = "INVALID_UPDATE_VERSION"
"""The error of an entity that was changed after the plan was made."""


async def planned(
    client: AsyncConfplane, files: ManifestFiles, options: Mapping[str, Any], *, break_glass: str | None = None
) -> dict[str, Any]:
    """Return the plan of a manifest; one that refuses all entities is a plan, too."""
    try:
        return {**(await client.manifests.plan(files.document, break_glass=break_glass, **options)).body}
    except ProblemError as error:
        if "changes" in error.body:
            return dict(error.body)
        raise placed(error, files) from None


def print_plan(
    found: Mapping[str, Any],
    files: ManifestFiles,
    *,
    as_diff: bool = False,
    with_changes: bool = True,
    break_glass: str | None = None,
) -> int:
    """Print a plan for people, and return the result of the command; report if ``break_glass`` bypasses nothing."""
    changes = found["changes"]
    if with_changes and not is_json():
        (print_plan_diff if as_diff else print_plan_table)(changes)
    for each in changes:
        for warning in each["warnings"]:
            say(f"Warning: {_place(each, files)}{each['id']}: {warning}", err=True)
    if forbidden := [each["id"] for each in changes if each["action"] != "none" and not each["mayAlter"]]:
        say(f"This token may not alter {', '.join(dict.fromkeys(forbidden))}", err=True)
    summary = found["summary"]
    counts = ", ".join(f"{summary[name]} to {name}" for name in ("create", "update", "delete"))
    counts += f", {summary['claim']} to claim" if summary["claim"] else ""
    counts += f", {summary['refused']} refused" if summary["refused"] else ""
    name = "Plan" if files.merged else f"Plan {found['planId']}"  # nothing takes the id of a load
    say(f"{name}: {counts}, {summary['none']} unchanged", err=as_diff)
    if affected := found.get("affectedClients"):  # absent in the answers of earlier releases
        say(f"Registered clients that would see other values: {affected}", err=as_diff)
    if (refused := _refused(found, files)) or all(each["action"] == "none" for each in changes):
        return refused
    report_bypass(break_glass, changes)
    return PLANNED


def _refused(found: Mapping[str, Any], files: ManifestFiles) -> int:
    """Print the refusals of a plan, if it has any, and return the exit code."""
    refusals = [
        f"{_place(each, files)}{text}"
        for each in found["changes"]
        if each["errorCode"] and each["errorName"] != "OPERATION_NOT_ATTEMPTED"
        for text in refusal_texts(each)
    ]
    if found["refusal"] is not None:
        refusals.append(found["refusal"]["detail"].replace("maxDeletes", "--max-deletes"))
    if not refusals:
        return DONE
    # A refusal of the whole cluster, such as a freeze, is that of each entity.
    return print_error("\n".join(dict.fromkeys(refusals)), FAILED, refused=len(refusals))


def _place(result: Mapping[str, Any], files: ManifestFiles) -> str:
    """Return the place of a refused entity in the files, for the beginning of a message."""
    place = next((files.place(each["pointer"]) for each in result.get("errors", ())), "")
    return f"{place}: " if place else ""


def placed(error: ProblemError, files: ManifestFiles) -> Exception:
    """Return an error that names the place in the files, if its parts lead into the document."""
    texts = [(files.place(str(each.get("pointer", ""))), str(each.get("detail", ""))) for each in error.errors]
    if texts and all(place for place, _ in texts):
        return InvalidRequestError("\n".join(f"{place}: {detail}" for place, detail in texts))
    return error


@dataclass(slots=True)
class PlanRun:
    """The run that applies a plan.

    Args:
        files: The manifest.
        options: The options of the plan.
        terms: The terms of the write.
    """

    files: ManifestFiles
    options: Mapping[str, Any]
    terms: Mapping[str, Any]
    changed: int = 0
    run_id: str | None = None
    """The request id of the run; None before the first answer."""
    continued: bool = False
    """True if an earlier attempt began the run, so that its request id also undoes the changes of that attempt."""
    waited: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """The results by entity id, for :func:`confplane.cli.remote.changes.report_many`."""

    async def send(self, client: AsyncConfplane, plan_id: str, revision: int) -> int:
        """Send the plan until all of it is applied, or a part is refused; return the exit code, or :data:`STALE`.

        Raises:
            ClientError: The service refused a request as a whole, for example because the plan is stale, or did not
                answer. What was applied before is printed with the id that undoes it.
        """
        code: int | None = None
        try:
            code = await self._send(client, plan_id, revision)
        finally:
            # After an error, and before the next plan, which another run applies.
            if code == DONE or (self.changed and code in {None, STALE}):
                self._say_applied()
        return code

    async def _send(self, client: AsyncConfplane, plan_id: str, revision: int) -> int:
        while True:
            try:
                answer = await client.manifests.apply(
                    self.files.document, plan_id, revision=revision, **self.options, **self.terms
                )
                body: Any = answer.body
                request_id = answer.request_id
            except ProblemError as error:
                if self.files.merged and error.problem_type == "stale-plan":
                    return STALE
                if "results" not in error.body:
                    raise
                body, request_id = error.body, error.body["requestId"]
            self.continued |= self.run_id is None and request_id not in {None, body["runId"]}
            if is_json():
                for each in body["results"]:
                    print_json(each)
            self.run_id = body["runId"]
            self.changed += sum(each["changeId"] is not None for each in body["results"])
            self.waited += [(each["id"], each) for each in body["results"]]
            is_stale = any(each.get("errorName") == _CHANGED for each in body["results"])
            if is_stale and self.files.merged:
                return STALE
            if body["failed"]:
                return self._end_refused(body, plan_id, is_stale=is_stale)
            if body["next"] is None:
                return DONE

    def _say_applied(self) -> None:
        say(f"Changes applied: {self.changed}{self._undone() if self.changed or self.continued else ''}")
        if self.changed:
            report_bypass(self.terms["break_glass"], (result for _, result in self.waited))

    def _undone(self) -> str:
        changes = "the whole run, with its earlier attempts" if self.continued else "them"
        return f"; `confplane revert --request-id {self.run_id}` undoes {changes}"

    def _end_refused(self, body: Mapping[str, Any], plan_id: str, *, is_stale: bool) -> int:
        refused = [each for each in body["results"] if each["errorCode"]]
        texts = [f"{_place(each, self.files)}{each['id']}: {text}" for each in refused for text in refusal_texts(each)]
        left = "" if body["next"] is None else f" Entities left: {body['next']['left']}."
        if is_stale:
            again = "Make a new plan of what is left."
        else:
            again = "load the file again" if self.files.merged else f"plan {plan_id} can be continued"
            again = f"Once the errors above are resolved, {again}."
        texts.append(f"Not all of the plan was applied. Changes applied: {self.changed}{self._undone()}.{left} {again}")
        # Only `confplane load` has an exit code of its own for these.
        is_unknown = self.files.merged and any(each.get("outcome") == "unknown" for each in refused)
        return print_error("\n".join(texts), UNKNOWN if is_unknown else FAILED, refused=len(texts) - 1)
