"""Regular expressions of the specification, in the common part of Python's and ECMA 262's syntax.

Those of entity ids are in :mod:`confplane.domain.id_patterns`.
"""

from __future__ import annotations

from typing import Final

from confplane.domain import id_patterns

REVISION: Final = "^[0-9]{1,19}$"
WAIT_MS: Final = "^([0-9]{1,4}|[1-5][0-9]{4}|60000)$"
CHANGE_ID: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
ROW_TOKEN: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\\.[0-9]{1,9}\\.[0-9]{1,9}$"  # noqa: S105 - a page token
UUID: Final = CHANGE_ID
"""Ids of tokens, grants and rows of their history."""
REQUEST_ID: Final = "^[A-Za-z0-9._:-]{1,128}$"
PLAN_ID: Final = "^[0-9a-f]{40}$"
CLUSTER: Final = "^[a-z0-9][a-z0-9-]{0,62}$"
WEBHOOK: Final = CLUSTER
"""Names of webhooks."""

_ETAG: Final = '"[!#-~\\u0080-\\u00ff]*"'
ETAG: Final = f"^{_ETAG}$"
_GIVEN: Final = f"[ \\t]*(W/)?{_ETAG}[ \\t]*"
ETAGS: Final = f"^([ \\t]*\\*[ \\t]*|{_GIVEN}(,{_GIVEN})*)$"
"""The value of If-Match: a list of ETags, or ``*``."""

NAME: Final = "^(?!\\.{1,2}$)[^\\u0000]+$"
"""A name that a znode can carry."""

AUDITED_ID: Final = f"^({id_patterns.ANY}|cluster)$"
"""Ids of everything with changes in the trail."""
ROLLUP_ID: Final = f"^({id_patterns.ANY})?$"
"""Ids of all entities; empty for the whole cluster."""
RESOURCE_NAME: Final = "^(?!\\.{1,2}$)[^\\u0000]*$"
"""Names of topics, brokers, groups and subscriptions, and the empty one."""
TIME: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
"""RFC 3339, with an offset."""
IDEMPOTENCY_KEY: Final = "^[!-~]([ -~]{0,253}[!-~])?$"
"""Printable ASCII. Blanks at the ends of a header are not part of it."""
PRINCIPAL: Final = "^(User|Group):[^\\u0000-\\u001f\\u007f]+$"
RESOURCE: Final = "^[a-z-]+(:[^\\u0000]*)?$"
"""A resource in a query: ``topic:orders``, ``cluster``."""
