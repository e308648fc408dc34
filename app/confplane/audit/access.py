"""Tokens, grants and their history in Postgres.

Each change is one transaction, most of them of one statement. It raises the common version of tokens and grants, writes
the row with that version, and adds its row of history. The row of the version is locked first. So changes commit in the
order of their versions, and a reader that has seen a version has seen every change up to it.

Each statement may be sent again after a lost reply: its second run finds the work of the first.

An earlier release may read the same tables during a rolling upgrade, and can't read operations that it does not know.
A grant of such an operation is hidden from it: it has a time of removal, and ``hidden`` is set. The limits of a token
have such operations in a member of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from sqlalchemy import Uuid, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP
from sqlalchemy.exc import IntegrityError
from typing_extensions import override

from confplane.audit.database import from_row
from confplane.domain.access.grants import Grant
from confplane.domain.access.identities import CredentialNarrowing, narrowing_view
from confplane.domain.access.operations import Operation, PatternType, Permission, ResourceType, Role
from confplane.domain.errors import AlreadyExistsError, WriteOutcome
from confplane.services.cooperative_yielding import in_slices
from confplane.services.ports.access import AccessChange, AccessDelta, AccessStore, StoredGrant, Token

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Row
    from sqlalchemy.ext.asyncio import AsyncConnection

    from confplane.audit.database import Database, Pipeline
    from confplane.services.ports.access import AccessQuery

# Locked by an earlier statement of the same transaction, so that the next one sees what its holder committed.
_LOCK_VERSION: Final = text("SELECT FROM access_version FOR UPDATE")
_RAISED: Final = "WITH raised AS (UPDATE access_version SET version = version + 1 RETURNING version)"
HISTORY: Final = """
INSERT INTO access_changes (
  id, kind, principal, source, subject, request_id, behalf_of, reason, ticket, before, after, count)
SELECT
  row.id, row.kind, row.principal, row.source, row.subject, row.request_id, row.behalf_of, row.reason, row.ticket,
  row.before, row.after, row.count
FROM jsonb_to_recordset(CAST(:changes AS jsonb)) AS row(
  id uuid, kind text, principal text, source text, subject text, request_id text, behalf_of text, reason text,
  ticket text, before jsonb, after jsonb, count integer)
"""
"""Adds the rows of history in ``:changes``; a condition may follow."""
_LATER_OPERATIONS: Final = frozenset({Operation.REPORT, Operation.TAKE_OVER})
"""Operations that the previous release can't read."""
_CURRENT: Final = "(grants.removed_at IS NULL OR grants.hidden)"
ON_CONFLICT: Final = "ON CONFLICT (id) DO NOTHING"
_ISSUED_COLUMNS: Final = (
    "id, principal, groups, owner, note, narrowing, created_at, created_by, expires_at, revoked_at, last_used_at,"
    " replaces, created_with"
)
_GRANT_COLUMNS: Final = (
    "id, principal, permission, cluster, operation, role, resource, pattern, name, note, created_at, created_by,"
    " version"
)
_INSERT_ISSUED: Final = """
INSERT INTO tokens (
  id, digest, principal, groups, owner, note, narrowing, created_at, created_by, expires_at, replaces, created_with,
  version)
SELECT
  row.id, :digest, row.principal, row.groups, row.owner, row.note, row.narrowing, row.created_at, row.created_by,
  row.expires_at, row.replaces, row.created_with, version
FROM raised, jsonb_to_record(CAST(:token AS jsonb)) AS row(
  id uuid, principal text, groups text[], owner text, note text, narrowing jsonb, created_at timestamptz,
  created_by text, expires_at timestamptz, replaces uuid, created_with uuid)
"""
# The lock waits for a concurrent revocation of the creating token, and then finds the token revoked: what is listed as
# created with a revoked token is all that ever will be.
_CREATOR: Final = "creator AS (SELECT FROM tokens WHERE id = :creator AND revoked_at IS NULL FOR SHARE)"
_CREATOR_VALID: Final = "(CAST(:creator AS uuid) IS NULL OR EXISTS (SELECT FROM creator))"
_NOT_INVALIDATED: Final = """
NOT EXISTS (
  SELECT FROM access_changes
  WHERE kind = 'tokens-invalidated' AND CAST(after->>'issuedBefore' AS timestamptz) > row.created_at
)
"""
_ADD_TOKEN: Final = text(f"""
{_RAISED}, {_CREATOR}, added AS (
  {_INSERT_ISSUED} WHERE {_CREATOR_VALID} AND {_NOT_INVALIDATED} {ON_CONFLICT} RETURNING id
)
{HISTORY} WHERE EXISTS (SELECT FROM added) {ON_CONFLICT}
""").bindparams(bindparam("creator", type_=Uuid))
_REVOKE_TOKEN: Final = text(f"""
{_RAISED}, revoked AS (
  UPDATE tokens SET revoked_at = now(), version = raised.version FROM raised
  WHERE id = :id AND revoked_at IS NULL RETURNING id
)
{HISTORY} WHERE EXISTS (SELECT FROM revoked) {ON_CONFLICT}
""")  # noqa: S608 - as above
_ROTATE_TOKEN: Final = text(f"""
{_RAISED}, {_CREATOR}, ended AS (
  UPDATE tokens SET expires_at = least(expires_at, :until), version = raised.version FROM raised
  WHERE id = :id AND revoked_at IS NULL AND expires_at > now() AND {_CREATOR_VALID} RETURNING id
), added AS ({_INSERT_ISSUED} WHERE EXISTS (SELECT FROM ended) {ON_CONFLICT} RETURNING id)
{HISTORY} WHERE EXISTS (SELECT FROM added) {ON_CONFLICT}
""").bindparams(bindparam("until", type_=TIMESTAMP(timezone=True)), bindparam("creator", type_=Uuid))  # noqa: S608 - as above
_CREATED_WITH: Final = text(f"""
WITH RECURSIVE found AS (
  SELECT id FROM tokens WHERE created_with = :id
  UNION SELECT tokens.id FROM tokens JOIN found ON tokens.created_with = found.id
)
SELECT {_ISSUED_COLUMNS} FROM tokens
WHERE id IN (SELECT id FROM found) AND revoked_at IS NULL AND expires_at > now() ORDER BY id
""")  # noqa: S608 - as above
_NAMES_BEHIND: Final = text("""
WITH RECURSIVE found AS (
  SELECT id, owner, created_by, replaces, created_with FROM tokens WHERE id = :id
  UNION
  SELECT made.* FROM found CROSS JOIN LATERAL (
    SELECT id, owner, created_by, replaces, created_with FROM tokens
    WHERE id = ANY(ARRAY[found.replaces, found.created_with]) OFFSET 0
  ) AS made
)
SELECT DISTINCT name FROM found CROSS JOIN LATERAL (VALUES (owner), (created_by)) AS names(name) WHERE name IS NOT NULL
""")
_CONFIRM_TOKENS: Final = text(f"""
WITH raised AS (
  UPDATE access_version SET version = version + 1, tokens_from = NULL WHERE tokens_from IS NOT NULL RETURNING version
)
{HISTORY} WHERE EXISTS (SELECT FROM raised) {ON_CONFLICT}
""")  # noqa: S608 - as above
_INVALIDATE_TOKENS: Final = text(f"""
WITH raised AS (
  UPDATE access_version SET
    version = version + 1, tokens_from = CASE WHEN tokens_from <= :before THEN NULL ELSE tokens_from END
  RETURNING version
), revoked AS (
  UPDATE tokens SET revoked_at = now(), version = raised.version FROM raised
  WHERE created_at < :before AND revoked_at IS NULL AND expires_at > now() RETURNING id
), noted AS ({HISTORY} {ON_CONFLICT})
SELECT count(*) FROM revoked
""").bindparams(bindparam("before", type_=TIMESTAMP(timezone=True)))  # noqa: S608 - as above
_FIND_TOKEN: Final = text(f"SELECT {_ISSUED_COLUMNS} FROM tokens WHERE id = :id")  # noqa: S608 - as above
_LIST_TOKENS: Final = text(f"""
SELECT {_ISSUED_COLUMNS} FROM tokens
WHERE (CAST(:principal AS text) IS NULL OR principal = :principal) AND (CAST(:after AS uuid) IS NULL OR id > :after)
ORDER BY id LIMIT :size
""")  # noqa: S608 - as above
# Committed without waiting for Postgres's disk: a killed process loses its most recent sums and uses, too.
_LATER: Final = "set_config('synchronous_commit', 'off', true) IS NOT NULL"
_NOTE_USE: Final = text(f"""
UPDATE tokens SET last_used_at = greatest(last_used_at, used.at)
FROM unnest(CAST(:ids AS uuid[]), CAST(:times AS timestamptz[])) AS used(id, at)
WHERE tokens.id = used.id AND {_LATER}
""").bindparams(bindparam("ids", type_=ARRAY(Uuid)), bindparam("times", type_=ARRAY(TIMESTAMP(timezone=True))))  # noqa: S608 - as above

_GIVEN_GRANT: Final = """
jsonb_to_record(CAST(:grant AS jsonb)) AS row(
  id uuid, principal text, permission text, cluster text, operation text, role text, resource text, pattern text,
  name text, note text, created_at timestamptz, created_by text, hidden boolean)
"""
_ADD_GRANT: Final = text(f"""
{_RAISED}, added AS (
  INSERT INTO grants (
    id, principal, permission, cluster, operation, role, resource, pattern, name, note, created_at, created_by,
    removed_at, hidden, change_id, version)
  SELECT
    row.id, row.principal, row.permission, row.cluster, row.operation, row.role, row.resource, row.pattern, row.name,
    row.note, row.created_at, row.created_by, CASE WHEN row.hidden THEN now() END, row.hidden, :change_id, version
  FROM raised, {_GIVEN_GRANT} ON CONFLICT DO NOTHING RETURNING id
)
{HISTORY} WHERE EXISTS (SELECT FROM added) {ON_CONFLICT}
""")  # noqa: S608 - as above
_SAME_GRANT: Final = text(f"""
SELECT {_GRANT_COLUMNS} FROM grants
WHERE {_CURRENT} AND (principal, permission, coalesce(cluster, ''), coalesce(operation, ''), coalesce(role, ''),
  coalesce(resource, ''), pattern, name) = (SELECT row.principal, row.permission, coalesce(row.cluster, ''),
  coalesce(row.operation, ''), coalesce(row.role, ''), coalesce(row.resource, ''), row.pattern, row.name
  FROM {_GIVEN_GRANT})
""")  # noqa: S608 - as above
_REPLACE_GRANT: Final = text(f"""
{_RAISED}, replaced AS (
  UPDATE grants SET
    principal = row.principal, permission = row.permission, cluster = row.cluster, operation = row.operation,
    role = row.role, resource = row.resource, pattern = row.pattern, name = row.name, note = row.note,
    removed_at = CASE WHEN row.hidden THEN now() END, hidden = row.hidden,
    change_id = :change_id, version = raised.version
  FROM raised, {_GIVEN_GRANT}
  WHERE grants.id = row.id AND {_CURRENT} AND grants.version = :revision RETURNING grants.id
)
{HISTORY} WHERE EXISTS (SELECT FROM replaced) {ON_CONFLICT}
""")  # noqa: S608 - as above
_REMOVE_GRANT: Final = text(f"""
{_RAISED}, removed AS (
  UPDATE grants SET removed_at = now(), hidden = false, change_id = :change_id, version = raised.version FROM raised
  WHERE grants.id = :id AND {_CURRENT} AND grants.version = :revision RETURNING grants.id
)
{HISTORY} WHERE EXISTS (SELECT FROM removed) {ON_CONFLICT}
""")  # noqa: S608 - as above
_MADE: Final = text(f"SELECT {_GRANT_COLUMNS} FROM grants WHERE id = :id AND change_id = :change_id")  # noqa: S608 - as above
_FIND_GRANT: Final = text(f"SELECT {_GRANT_COLUMNS} FROM grants WHERE id = :id AND {_CURRENT}")  # noqa: S608 - as above
_LIST_GRANTS: Final = text(f"""
SELECT {_GRANT_COLUMNS} FROM grants
WHERE {_CURRENT} AND (CAST(:principal AS text) IS NULL OR principal = :principal)
  AND (CAST(:cluster AS text) IS NULL OR cluster = :cluster) AND (CAST(:after AS uuid) IS NULL OR id > :after)
ORDER BY id LIMIT :size
""")  # noqa: S608 - as above

_VERSION: Final = text("SELECT version, tokens_from FROM access_version")
# A whole load omits tokens and grants that have ended: no reader needs to learn of their end.
_TOKENS_SINCE: Final = text(f"""
SELECT digest, {_ISSUED_COLUMNS} FROM tokens
WHERE version > :since AND (:since >= 0 OR revoked_at IS NULL AND expires_at > now())
""")  # noqa: S608 - as above
_GRANTS_SINCE: Final = text(f"""
SELECT NOT {_CURRENT} AS removed, {_GRANT_COLUMNS} FROM grants
WHERE version > :since AND (:since >= 0 OR {_CURRENT})
""")  # noqa: S608 - as above
_SEARCH: Final = text("""
SELECT
  id, kind, principal, source, subject, request_id, behalf_of, reason, ticket, before, after, count, recorded_at
FROM access_changes
WHERE (CAST(:kind AS text) IS NULL OR kind = :kind) AND (CAST(:principal AS text) IS NULL OR principal = :principal)
  AND (CAST(:subject AS text) IS NULL OR subject = :subject)
  AND (CAST(:since AS timestamptz) IS NULL OR recorded_at >= :since)
  AND (CAST(:until AS timestamptz) IS NULL OR recorded_at < :until)
  AND (CAST(:before AS uuid) IS NULL OR id < :before)
ORDER BY id DESC LIMIT :size
""")
_ADD_EVENTS: Final = text(f"{HISTORY} WHERE {_LATER} {ON_CONFLICT}")
_WHOLE: Final = -1


class PostgresAccessStore(AccessStore):
    """Tokens, grants and their history, in Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- tokens

    @override
    async def create_token(self, token: Token, digest: bytes, change: AccessChange) -> bool:
        given = {"digest": digest, "token": _token_json(token), "changes": changes_json([change])}

        async def work(pipeline: Pipeline) -> None:
            await pipeline.send(_LOCK_VERSION)
            await pipeline.send(_ADD_TOKEN, **given, creator=token.created_with)

        await self._database.atomically(work)
        return await self.find_token(token.id) is not None

    @override
    async def revoke_token(self, token_id: UUID, change: AccessChange) -> Token | None:
        await self._database.execute(_REVOKE_TOKEN, id=token_id, changes=changes_json([change]))
        return await self.find_token(token_id)

    @override
    async def rotate_token(
        self, token_id: UUID, until: datetime, token: Token, digest: bytes, change: AccessChange
    ) -> bool:
        given = {"digest": digest, "token": _token_json(token), "changes": changes_json([change])}
        # A token that replaces itself is the row that the statement ends, which it can't lock as well.
        creator = None if token.created_with == token_id else token.created_with
        await self._database.execute(_ROTATE_TOKEN, id=token_id, until=until, creator=creator, **given)
        return await self.find_token(token.id) is not None

    @override
    async def created_with(self, token_id: UUID) -> list[Token]:
        return [_token(row) for row in await self._database.rows(_CREATED_WITH, id=token_id)]

    @override
    async def names_behind(self, token_id: UUID) -> frozenset[str]:
        return frozenset(await self._database.scalars(_NAMES_BEHIND, id=token_id))

    @override
    async def confirm_tokens(self, change: AccessChange) -> bool:
        return await self._database.execute(_CONFIRM_TOKENS, changes=changes_json([change])) > 0

    @override
    async def invalidate_tokens(self, before: datetime, change: AccessChange) -> int:
        async def work(pipeline: Pipeline) -> int:
            await pipeline.send(_LOCK_VERSION)
            done = await pipeline.send(_INVALIDATE_TOKENS, before=before, changes=changes_json([change]))
            [[count]] = await done.fetchall()
            return int(count)

        return await self._database.atomically(work)

    @override
    async def find_token(self, token_id: UUID) -> Token | None:
        row = await self._database.row(_FIND_TOKEN, id=token_id)
        return None if row is None else _token(row)

    @override
    async def list_tokens(
        self, *, principal: str | None, page_size: int, after: UUID | None
    ) -> tuple[list[Token], UUID | None]:
        rows = await self._database.rows(_LIST_TOKENS, principal=principal, after=after, size=page_size + 1)
        found = [_token(row) for row in rows[:page_size]]
        return found, found[-1].id if len(rows) > page_size else None

    @override
    async def record_use(self, used: dict[UUID, datetime]) -> None:
        await self._database.execute(_NOTE_USE, ids=list(used), times=list(used.values()))

    # -- grants

    @override
    async def create_grant(self, grant: StoredGrant, change: AccessChange) -> StoredGrant:
        given = {"grant": _grant_json(grant), "changes": changes_json([change]), "change_id": change.id}
        await self._database.execute(_ADD_GRANT, **given)
        row = await self._database.row(_MADE, id=grant.grant.id, change_id=change.id)
        row = row or await self._database.row(_SAME_GRANT, grant=given["grant"])
        # The same grant may have been removed between the two statements: try again.
        return await self.create_grant(grant, change) if row is None else _grant(row)

    @override
    async def replace_grant(self, grant: StoredGrant, change: AccessChange) -> StoredGrant | None:
        given = {"grant": _grant_json(grant), "revision": grant.revision, "change_id": change.id}
        try:
            await self._database.execute(_REPLACE_GRANT, **given, changes=changes_json([change]))
        except IntegrityError as error:
            raise AlreadyExistsError(
                "Another grant has this content already; remove one of the two", outcome=WriteOutcome.NOT_APPLIED
            ) from error
        row = await self._database.row(_MADE, id=grant.grant.id, change_id=change.id)
        return None if row is None else _grant(row)

    @override
    async def remove_grant(self, grant_id: UUID, revision: int, change: AccessChange) -> bool:
        given = {"id": grant_id, "change_id": change.id}
        await self._database.execute(_REMOVE_GRANT, **given, revision=revision, changes=changes_json([change]))
        return await self._database.row(_MADE, **given) is not None

    @override
    async def find_grant(self, grant_id: UUID) -> StoredGrant | None:
        row = await self._database.row(_FIND_GRANT, id=grant_id)
        return None if row is None else _grant(row)

    @override
    async def list_grants(
        self, *, principal: str | None, cluster: str | None, page_size: int, after: UUID | None
    ) -> tuple[list[StoredGrant], UUID | None]:
        given = {"principal": principal, "cluster": cluster, "after": after}
        rows = await self._database.rows(_LIST_GRANTS, **given, size=page_size + 1)
        found = [_grant(row) for row in rows[:page_size]]
        return found, found[-1].grant.id if len(rows) > page_size else None

    # -- both

    @override
    async def load(self, since: int | None) -> AccessDelta | None:
        async def work(
            connection: AsyncConnection,
        ) -> tuple[int, datetime | None, Sequence[Row[Any]], Sequence[Row[Any]]] | None:
            # The version is read first: rows of later changes may be read too, and are then read again.
            version, tokens_from = (await connection.execute(_VERSION)).one()
            if version == since:
                return None
            # If the version is lower than before, Postgres was restored from an earlier state.
            known = {"since": _WHOLE if since is None or version < since else since}
            tokens = (await connection.execute(_TOKENS_SINCE, known)).all()
            return version, tokens_from, tokens, (await connection.execute(_GRANTS_SINCE, known)).all()

        found = await self._database.read(work)
        if found is None:
            return None
        version, tokens_from, tokens, grants = found
        made = await in_slices(_token, tokens)
        return AccessDelta(
            version,
            whole=since is None or version < since,
            tokens={row.digest: token for row, token in zip(tokens, made, strict=True)},
            grants=await in_slices(_grant, [row for row in grants if not row.removed]),
            removed=frozenset(row.id for row in grants if row.removed),
            tokens_from=tokens_from,
        )

    @override
    async def search(self, query: AccessQuery) -> tuple[list[AccessChange], UUID | None]:
        given = {name: getattr(query, name) for name in ("kind", "principal", "subject", "since", "until", "before")}
        rows = await self._database.rows(_SEARCH, **given, size=query.page_size + 1)
        found = [from_row(AccessChange, row) for row in rows[: query.page_size]]
        return found, found[-1].id if len(rows) > query.page_size else None

    @override
    async def add_events(self, rows: Sequence[AccessChange]) -> None:
        await self._database.execute(_ADD_EVENTS, changes=changes_json(rows))


def changes_json(changes: Sequence[AccessChange]) -> str:
    """Return rows of history as the argument of :data:`HISTORY`."""
    return orjson.dumps(changes).decode()


def _token_json(token: Token) -> str:
    names = ("id", "principal", "owner", "note", "created_at", "created_by", "expires_at", "replaces", "created_with")
    content = {name: getattr(token, name) for name in names}
    content |= {"groups": sorted(token.groups), "narrowing": _narrowing_json(token.narrowing)}
    return orjson.dumps(content).decode()


def _narrowing_json(narrowing: CredentialNarrowing | None) -> dict[str, Any] | None:
    view = narrowing_view(narrowing)
    if view is None or view["operations"] is None or _LATER_OPERATIONS.isdisjoint(view["operations"]):
        return view
    later = [each for each in view["operations"] if each in _LATER_OPERATIONS]
    return {**view, "operations": [each for each in view["operations"] if each not in later], "laterOperations": later}


def _token(row: Row[Any]) -> Token:
    narrowing = None if row.narrowing is None else _narrowing(row.narrowing)
    return from_row(Token, row, groups=frozenset(row.groups), narrowing=narrowing)


def _narrowing(limits: dict[str, Any]) -> CredentialNarrowing:
    operations = limits["operations"]
    if operations is not None:
        operations = frozenset(map(Operation, (*operations, *limits.get("laterOperations", ()))))
    clusters = limits["clusters"]
    return CredentialNarrowing(limits["readOnly"], None if clusters is None else frozenset(clusters), operations)


def _grant_json(stored: StoredGrant) -> str:
    return orjson.dumps(
        {
            **{name: getattr(stored.grant, name) for name in _CONTENT},
            "note": stored.note,
            "created_at": stored.created_at,
            "created_by": stored.created_by,
            "hidden": stored.grant.operation in _LATER_OPERATIONS,
        }
    ).decode()


_CONTENT: Final = ("id", "principal", "permission", "cluster", "operation", "role", "resource", "pattern", "name")


def _grant(row: Row[Any]) -> StoredGrant:
    grant = Grant(
        row.id,
        row.principal,
        Permission(row.permission),
        row.cluster,
        None if row.operation is None else Operation(row.operation),
        None if row.role is None else Role(row.role),
        None if row.resource is None else ResourceType(row.resource),
        PatternType(row.pattern),
        row.name,
    )
    return StoredGrant(grant, row.created_at, row.created_by, row.note, row.version)
