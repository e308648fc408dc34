"""Change requests in Postgres. Each statement may be sent again after a lost reply: its second run finds its event."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import orjson
from sqlalchemy import Boolean, Double, Integer, Text, Uuid, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP
from typing_extensions import override

from confplane.audit.batcher import Batcher
from confplane.audit.tables import WAITING_STATES
from confplane.domain.access.identities import Authentication, CredentialNarrowing, Identity
from confplane.domain.access.operations import Operation
from confplane.domain.approvals import Globs, Requirement
from confplane.domain.change_requests import COMMENT, DRAFTED, WRITTEN, RequestAction, RequestKind, RequestState
from confplane.domain.errors import IdempotencyKeyBusyError, UnavailableError, WriteOutcome
from confplane.services.ports.change_requests import (
    ChangeRequest,
    ChangeRequestStore,
    GivenApproval,
    Participant,
    RequestApplication,
    RequestAttempts,
    RequestEvent,
    RequestStatus,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy import Row, TextClause

    from confplane.audit.database import Database
    from confplane.services.ports.change_requests import RequestClaim

_TIME: Final = TIMESTAMP(timezone=True)
_AFTER_REVERTS: Final[Mapping[str, str]] = {
    DRAFTED: RequestState.DRAFT,
    RequestAction.REDRAFT: RequestState.DRAFT,
    RequestAction.FINISH_PARTLY: RequestState.PARTLY_APPLIED,
    RequestAction.REVERT: RequestState.REVERTING,
    RequestAction.FINISH_REVERT: RequestState.REVERTED,
    RequestAction.FINISH_REVERT_PARTLY: RequestState.REVERTED_PARTLY,
}
_STATES: Final = frozenset(map(str, RequestState))
_SHOWN: Final = frozenset({RequestState.DRAFT, RequestState.PARTLY_APPLIED})
_ENDS: Final = frozenset({RequestAction.FINISH, RequestAction.FINISH_PARTLY})
_COLUMNS: Final = "id, cluster, state, version, revision, entity_ids, created_at, expires_at, apply_at, content"
_REVISION: Final = """
INSERT INTO change_request_revisions (request_id, revision, digest, draft)
SELECT id, :revision, :digest, CAST(:draft AS jsonb) FROM changed ON CONFLICT DO NOTHING
"""
# The row stays locked until the commit: Postgres shows the events of a cluster in the order of their numbers.
_NUMBER: Final = """
INSERT INTO change_request_numbers (cluster, number) SELECT :cluster, 1 FROM changed
ON CONFLICT (cluster) DO UPDATE SET number = change_request_numbers.number + 1 RETURNING number
"""
_EVENT: Final = """
INSERT INTO change_request_events (id, request_id, action, revision, state, at, principal, behalf_of, text{columns})
SELECT :event_id, id, :action, :revision, :state, :at, :principal, :behalf_of, :text{values}
ON CONFLICT (id) DO NOTHING
"""
_NUMBERED_EVENT: Final = _EVENT.format(columns=", cluster, number", values=", :cluster, number FROM changed, numbered")
_WRITTEN: Final = (
    *(bindparam("id", type_=Uuid), bindparam("event_id", type_=Uuid), bindparam("entity_ids", type_=ARRAY(Text))),
    *(bindparam(name, type_=_TIME) for name in ("expires_at", "apply_at", "at")),
    *(bindparam(name, type_=Text) for name in ("principal", "behalf_of", "text")),
)


def _statement(changed: str, before: str = "") -> TextClause:
    return text(
        f"WITH {before}changed AS ({changed} RETURNING id), revised AS ({_REVISION}), numbered AS ({_NUMBER})"
        f" {_NUMBERED_EVENT}"
    ).bindparams(*_WRITTEN)


_INSERT: Final = f"""
INSERT INTO change_requests ({_COLUMNS})
SELECT :id, :cluster, :state, :version, :revision, :entity_ids, :created_at, :expires_at, :apply_at,
  CAST(:content AS jsonb)
"""
_CREATE: Final = _statement(f"{_INSERT} ON CONFLICT DO NOTHING").bindparams(bindparam("created_at", type_=_TIME))
# The row of the key is locked, so that no other request takes the key over while the change request is made.
_CREATE_ONCE: Final = _statement(
    f"{_INSERT} FROM (SELECT id FROM claimed UNION ALL SELECT id FROM held) AS turn ON CONFLICT DO NOTHING",  # noqa: S608
    """
claimed AS (
  INSERT INTO request_keys (key, id, holder, cluster, body, writer, until)
  SELECT :key, :id, :holder, :cluster, :body, :writer, now() + make_interval(secs => :seconds) WHERE :fresh
  ON CONFLICT DO NOTHING RETURNING id
), held AS MATERIALIZED (SELECT id FROM request_keys WHERE id = :id AND holder = :holder FOR SHARE), """,
).bindparams(
    bindparam("created_at", type_=_TIME),
    bindparam("holder", type_=Uuid),
    bindparam("fresh", type_=Boolean),
    bindparam("seconds", type_=Double),
    *(bindparam(name, type_=Text) for name in ("key", "body", "writer")),
)
_UPDATE: Final = _statement("""
UPDATE change_requests SET
  state = :state, version = :version, revision = :revision, entity_ids = :entity_ids, expires_at = :expires_at,
  apply_at = :apply_at, content = CAST(:content AS jsonb)
WHERE id = :id AND cluster = :cluster AND version = :version - 1
""")
_ADD_EVENT: Final = text(
    _EVENT.format(columns="", values=" FROM (SELECT CAST(:id AS uuid) AS id) AS changed")
).bindparams(*(each for each in _WRITTEN if each.key in {"id", "event_id", "at", "principal", "behalf_of", "text"}))
_HAS_EVENT: Final = text("SELECT FROM change_request_events WHERE id = :id").bindparams(bindparam("id", type_=Uuid))
_FIND: Final = text(f"""
SELECT {_COLUMNS}, (
  SELECT draft FROM change_request_revisions AS revisions
  WHERE revisions.request_id = change_requests.id AND revisions.revision = change_requests.revision
) AS draft
FROM change_requests WHERE cluster = :cluster AND id = :id
""").bindparams(bindparam("id", type_=Uuid))  # noqa: S608 - as above
_LIST: Final = text(f"""
SELECT {_COLUMNS} FROM change_requests
WHERE cluster = :cluster AND (
    CAST(:state AS text) IS NULL OR coalesce(content->>'shown_state', content->>'revert_state', state) = :state
  )
  AND (CAST(:before AS uuid) IS NULL OR id < :before)
  AND (CAST(:entity_id AS text) IS NULL OR :entity_id = ANY(entity_ids))
ORDER BY id DESC LIMIT :most
""").bindparams(  # noqa: S608 - as above
    bindparam("state", type_=Text), bindparam("before", type_=Uuid), bindparam("entity_id", type_=Text)
)
_EVENTS: Final = text("""
SELECT id, action, revision, state, at, principal, behalf_of, text FROM change_request_events
WHERE request_id = :id ORDER BY id DESC LIMIT :most
""").bindparams(bindparam("id", type_=Uuid))
_ENTITIES_OF: Final = text("""
SELECT revision, ARRAY(SELECT edit->>'entity' FROM jsonb_array_elements(draft->'edits') AS edit) AS entity_ids
FROM change_request_revisions WHERE request_id = :id AND revision = ANY(:revisions)
""").bindparams(bindparam("id", type_=Uuid), bindparam("revisions", type_=ARRAY(Integer)))
_ATTEMPTS: Final = text("""
SELECT intents.change_id, outcomes.committed, ARRAY(
  SELECT ARRAY[facet, entity_id] FROM intent_entities AS altered
  WHERE committed AND (altered.change_id, altered.attempt) = (intents.change_id, intents.attempt)
) AS places
FROM intents LEFT JOIN outcomes USING (change_id)
WHERE intents.applies = :id
ORDER BY intents.change_id
""").bindparams(bindparam("id", type_=Uuid))
_LATE: Final = text("""
SELECT id FROM change_requests
WHERE cluster = :cluster
  AND (
    content->>'kind' = 'change'
      AND state IN ('open', 'approved', 'scheduled', 'failed', 'rejected', 'cancelled', 'expired')
    OR content->>'kind' = 'break-glass' AND state = 'cancelled'
  )
  AND EXISTS (
    SELECT FROM intents JOIN outcomes USING (change_id) WHERE intents.applies = change_requests.id AND committed
  )
ORDER BY id LIMIT :most
""")
_UNWRITTEN: Final = text(f"""
SELECT id FROM change_requests
WHERE cluster = :cluster AND state IN {WAITING_STATES} AND state = 'open' AND content->>'kind' = 'break-glass'
  AND CAST(content->'application'->>'until' AS timestamptz) < :until
  AND NOT EXISTS (
    SELECT FROM intents LEFT JOIN outcomes USING (change_id)
    WHERE intents.applies = change_requests.id AND coalesce(committed, true)
  )
ORDER BY id LIMIT :most
""").bindparams(bindparam("until", type_=_TIME))  # noqa: S608 - as above
_KEYS: Final = """
SELECT edit->>'facet', edit->>'entity', item->>'key' FROM change_request_revisions AS contents
CROSS JOIN jsonb_array_elements(draft->'edits') AS edit CROSS JOIN jsonb_array_elements(edit->'diff') AS item
WHERE (contents.request_id, contents.revision) = ({0}.id, {0}.revision)
"""
# A process of an earlier release drops the member `reverts` of a request that it writes, so both members count.
_ENDED_REVERTS: Final = text(f"""
WITH pairs AS (
  SELECT id, CAST(content->>'reverts' AS uuid) AS reverted FROM change_requests
  WHERE cluster = :cluster AND content->>'reverts' IS NOT NULL
  UNION
  SELECT CAST(content->>'reverted_by' AS uuid), id FROM change_requests
  WHERE cluster = :cluster AND content->>'revert_state' = 'reverting'
)
SELECT reverts.id, reverted.id AS reverted FROM pairs
JOIN change_requests AS reverts ON reverts.id = pairs.id
JOIN change_requests AS reverted ON reverted.id = pairs.reverted
WHERE reverts.content->>'shown_state' IS NULL AND (
  (
    reverts.state IN ('applied', 'failed', 'rejected', 'cancelled', 'expired')
    AND reverted.content->>'revert_state' = 'reverting' AND reverted.content->>'reverted_by' = CAST(reverts.id AS text)
  ) OR (
    reverts.state = 'applied' AND reverted.state = 'applied'
    AND coalesce(reverted.content->>'revert_state', 'reverting') = 'reverting'
    AND EXISTS ({_KEYS.format("reverts")} INTERSECT {_KEYS.format("reverted")})
  )
)
ORDER BY reverts.id LIMIT :most
""")  # noqa: S608 - as above
_STATUS: Final = text(f"""
SELECT ARRAY(
  SELECT id FROM change_requests
  WHERE cluster = wanted.cluster AND state IN {WAITING_STATES}
    AND (state = 'applying' OR expires_at <= wanted.now OR (state = 'scheduled' AND apply_at <= wanted.now))
  ORDER BY apply_at, id LIMIT wanted.most
) AS due, (
  SELECT jsonb_object_agg(state, number) FROM (
    SELECT state, count(*) AS number FROM change_requests
    WHERE cluster = wanted.cluster AND state IN {WAITING_STATES} GROUP BY state
  ) AS counted
) AS states, (
  SELECT jsonb_object_agg(kind, oldest) FROM (
    SELECT content->>'kind' AS kind, min(created_at) AS oldest FROM change_requests
    WHERE cluster = wanted.cluster AND state IN {WAITING_STATES} AND state = 'open' GROUP BY kind
  ) AS aged
) AS oldest
FROM jsonb_to_recordset(CAST(:wanted AS jsonb)) AS wanted(number integer, cluster text, now timestamptz, most integer)
ORDER BY number
""")  # noqa: S608 - as above


class PostgresChangeRequests(ChangeRequestStore):
    """Change requests, in Postgres."""

    def __init__(self, database: Database) -> None:
        self.unknown = Counter()
        self._database = database
        self._statuses = Batcher(self._status)

    @override
    async def create(self, request: ChangeRequest, event: RequestEvent, claim: RequestClaim | None = None) -> None:
        given = {"created_at": request.created_at, **_given(request, event)}
        if claim is None:
            await self._database.execute(_CREATE, **given)
            return
        made, writer = claim
        held = {"key": made.key, "holder": made.holder, "body": made.body, "fresh": made.fresh, "seconds": made.seconds}
        if await self._database.execute(_CREATE_ONCE, writer=writer, **held, **given):
            return
        if await self._database.row(_HAS_EVENT, id=event.id) is None:
            raise IdempotencyKeyBusyError(
                "Another request with this Idempotency-Key is under way; nothing was changed by this one",
                outcome=WriteOutcome.NOT_APPLIED,
                retry_after_s=1,
            )

    @override
    async def write(self, request: ChangeRequest, event: RequestEvent) -> bool:
        if await self._database.execute(_UPDATE, **_given(request, event)):
            return True
        return await self._database.row(_HAS_EVENT, id=event.id) is not None

    @override
    async def add_event(self, request_id: UUID, event: RequestEvent) -> None:
        given = {"revision": event.revision, "state": _stored(event.state), **_event_given(event)}
        await self._database.execute(_ADD_EVENT, id=request_id, **given)

    @override
    async def find(self, cluster: str, request_id: UUID) -> ChangeRequest | None:
        row = await self._database.row(_FIND, cluster=cluster, id=request_id)
        if row is None:
            return None
        request = self._read(row)
        if request is None:
            raise UnavailableError(
                f"The change request {request_id} was written by a newer release of Confplane, which this process can't"
                " read. Try again once all processes have that release"
            )
        return replace(request, draft=row.draft)

    @override
    async def search(
        self, cluster: str, *, state: RequestState | None, before: UUID | None, most: int, entity_id: str | None
    ) -> list[ChangeRequest]:
        given = {"state": None if state is None else state.value, "entity_id": entity_id}
        found: list[ChangeRequest] = []
        while len(found) < most:
            size = most - len(found)
            rows = await self._database.rows(_LIST, cluster=cluster, before=before, most=size, **given)
            found += (request for request in map(self._read, rows) if request is not None)
            if len(rows) < size:
                break
            before = rows[-1].id
        return found

    @override
    async def events(self, request_id: UUID, most: int) -> list[RequestEvent]:
        found: list[RequestEvent] = []
        for row in reversed(await self._database.rows(_EVENTS, id=request_id, most=most)):
            name = state_after(row.action, row.state)
            if name not in _STATES:
                continue  # a newer release wrote it
            state = RequestState(name)
            if row.action == COMMENT and state in {RequestState.APPLIED, RequestState.CANCELLED} and found:
                state = found[-1].state
            ends = [each.state for each in found if each.action in _ENDS]
            if row.action == RequestAction.DROP_REVERT and ends:
                state = ends[-1]
            found.append(
                RequestEvent(row.id, row.action, row.at, row.principal, row.behalf_of, row.text, row.revision, state)
            )
        return found

    @override
    async def entities_of(self, request_id: UUID, revisions: Collection[int]) -> dict[int, frozenset[str]]:
        rows = await self._database.rows(_ENTITIES_OF, id=request_id, revisions=list(revisions)) if revisions else ()
        return {row.revision: frozenset(row.entity_ids) for row in rows}

    @override
    async def attempts(self, request_id: UUID) -> RequestAttempts:
        rows = await self._database.rows(_ATTEMPTS, id=request_id)
        committed = next((row.change_id for row in rows if row.committed), None)
        places = frozenset((facet, entity_id) for row in rows for facet, entity_id in row.places)
        return RequestAttempts(committed, any(row.committed is None for row in rows), places)

    @override
    async def late(self, cluster: str, most: int) -> list[UUID]:
        return [row.id for row in await self._database.rows(_LATE, cluster=cluster, most=most)]

    @override
    async def unwritten(self, cluster: str, until: datetime, most: int) -> list[UUID]:
        return [row.id for row in await self._database.rows(_UNWRITTEN, cluster=cluster, until=until, most=most)]

    @override
    async def ended_reverts(self, cluster: str, most: int) -> list[tuple[UUID, UUID]]:
        return [(row.id, row.reverted) for row in await self._database.rows(_ENDED_REVERTS, cluster=cluster, most=most)]

    @override
    async def status(self, cluster: str, now: datetime, most: int) -> RequestStatus:
        return await self._statuses.request({"cluster": cluster, "now": now, "most": most})

    async def _status(self, wanted: Sequence[Mapping[str, Any]]) -> Sequence[RequestStatus]:
        given = orjson.dumps([{"number": number, **each} for number, each in enumerate(wanted)]).decode()
        return [
            RequestStatus(
                row.due,
                {RequestState(state): number for state, number in (row.states or {}).items()},
                {
                    RequestKind(kind): datetime.fromisoformat(at)
                    for kind, at in (row.oldest or {}).items()
                    if kind in set(RequestKind)
                },
            )
            for row in await self._database.rows(_STATUS, wanted=given)
        ]

    def _read(self, row: Row[Any]) -> ChangeRequest | None:
        """Return the request of a row. Returns None, and counts it, if it has names that only a newer release knows."""
        try:
            return _request(row)
        except ValueError:
            self.unknown[row.cluster] += 1
            return None


def _given(request: ChangeRequest, event: RequestEvent) -> dict[str, Any]:
    """Return the parameters of a write."""
    return {
        "id": request.id,
        "cluster": request.cluster,
        "state": _stored(request.state),
        "version": request.version,
        "revision": request.revision,
        "digest": request.digest,
        "draft": orjson.dumps(request.draft).decode(),
        "entity_ids": list(request.entity_ids),
        "expires_at": request.expires_at,
        "apply_at": request.apply_at,
        "content": orjson.dumps(_content(request)).decode(),
        **_event_given(event),
    }


def _stored(state: RequestState) -> str:
    """Return the state to store. The content has those that earlier releases do not know.

    A draft is ``cancelled`` to them, so they do not act on it, and it does not expire.
    """
    if state is RequestState.DRAFT:
        return RequestState.CANCELLED.value
    return RequestState.APPLIED.value if state in WRITTEN | {RequestState.PARTLY_APPLIED} else state.value


def state_after(action: str, stored: str) -> str:
    """Return the state after an event, given the state that is stored with it."""
    return _AFTER_REVERTS.get(action, stored)


def _event_given(event: RequestEvent) -> dict[str, Any]:
    return {
        "event_id": event.id,
        "action": event.action,
        "at": event.at,
        "principal": event.principal,
        "behalf_of": event.behalf_of,
        "text": event.text,
    }


def _content(request: ChangeRequest) -> dict[str, Any]:
    application = request.application
    return {
        "kind": request.kind,
        "digest": request.digest,
        "authors": [_participant_json(each) for each in request.authors],
        "reason": request.reason,
        "ticket": request.ticket,
        "warnings": request.warnings,
        "approvals": [
            {"approver": _participant_json(each.approver), "at": each.at, "entities": sorted(each.entities)}
            for each in request.approvals
        ],
        "requirements": {
            entity_id: [{"rule": each.rule, "count": each.count, "approvers": each.approvers.texts} for each in some]
            for entity_id, some in request.requirements.items()
        },
        "application": None if application is None else {"writer": application.writer, "until": application.until},
        "change_id": request.change_id,
        "error": request.error,
        "differences": request.differences,
        "reverts": request.reverts,
        "reverts_partly": request.reverts_partly,
        "reverted_by": request.reverted_by,
        "shown_state": request.state if request.state in _SHOWN else None,
        "revert_state": request.state if request.state in WRITTEN - {RequestState.APPLIED} else None,
    }


def _request(row: Row[Any]) -> ChangeRequest:
    content = row.content
    application = content["application"]
    return ChangeRequest(
        row.id,
        row.cluster,
        _state(row),
        row.version,
        row.revision,
        content["digest"],
        tuple(row.entity_ids),
        row.created_at,
        tuple(map(_participant, content["authors"])),
        RequestKind(content["kind"]),
        content["reason"],
        content["ticket"],
        row.expires_at,
        row.apply_at,
        tuple(content["warnings"]),
        tuple(
            GivenApproval(
                _participant(each["approver"]), datetime.fromisoformat(each["at"]), frozenset(each["entities"])
            )
            for each in content["approvals"]
        ),
        {
            entity_id: tuple(Requirement(each["rule"], each["count"], Globs(each["approvers"])) for each in some)
            for entity_id, some in content["requirements"].items()
        },
        None
        if application is None
        else RequestApplication(application["writer"], datetime.fromisoformat(application["until"])),
        _uuid(content["change_id"]),
        content["error"],
        tuple(content["differences"]),
        _uuid(content.get("reverts")),
        content.get("reverts_partly", False),
        _uuid(content.get("reverted_by")),
    )


def _state(row: Row[Any]) -> RequestState:
    """Return the state of a request. The one that is stored stands for a state of the content that this release lacks.

    Raises:
        ValueError: This release does not know the stored one.
    """
    shown = row.content.get("shown_state") or row.content.get("revert_state")
    return RequestState(shown if shown in _STATES else row.state)


def _uuid(given: str | None) -> UUID | None:
    return None if given is None else UUID(given)


def _participant_json(participant: Participant) -> dict[str, Any]:
    return {"identity": _identity_json(participant.identity), "related": sorted(participant.related)}


def _participant(given: Mapping[str, Any]) -> Participant:
    return Participant(_identity(given["identity"]), frozenset(given["related"]))


def _identity_json(identity: Identity) -> dict[str, Any]:
    narrowing, behalf_of = identity.narrowing, identity.behalf_of
    return {
        "principal": identity.principal,
        "kind": identity.kind,
        "groups": sorted(identity.groups),
        "issuer": identity.issuer,
        "token_id": identity.token_id,
        "narrowing": None
        if narrowing is None
        else {
            "read_only": narrowing.read_only,
            "clusters": None if narrowing.clusters is None else sorted(narrowing.clusters),
            "operations": None if narrowing.operations is None else sorted(narrowing.operations),
        },
        "behalf_of": None if behalf_of is None else _identity_json(behalf_of),
        "denying_groups": sorted(identity.denying_groups),
    }


def _identity(given: Mapping[str, Any]) -> Identity:
    narrowing, behalf_of = given["narrowing"], given["behalf_of"]
    limits = None
    if narrowing is not None:
        clusters, operations = narrowing["clusters"], narrowing["operations"]
        limits = CredentialNarrowing(
            narrowing["read_only"],
            None if clusters is None else frozenset(clusters),
            None if operations is None else frozenset(map(Operation, operations)),
        )
    return Identity(
        given["principal"],
        Authentication(given["kind"]),
        groups=frozenset(given["groups"]),
        issuer=given["issuer"],
        narrowing=limits,
        token_id=_uuid(given["token_id"]),
        behalf_of=None if behalf_of is None else _identity(behalf_of),
        denying_groups=frozenset(given["denying_groups"]),
    )
