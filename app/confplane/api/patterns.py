"""Regular expressions of the specification, in the common part of Python's and ECMA 262's syntax."""

from __future__ import annotations

from typing import Final

REVISION: Final = "^[0-9]{1,19}$"
WAIT_MS: Final = "^([0-9]{1,4}|[1-5][0-9]{4}|60000)$"
CHANGE_ID: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
ROW_TOKEN: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\\.[0-9]{1,9}\\.[0-9]{1,9}$"  # noqa: S105 - a page token
UUID: Final = CHANGE_ID
"""Ids of tokens, grants and rows of their history."""
REQUEST_ID: Final = "^[A-Za-z0-9._:-]{1,128}$"
CLUSTER: Final = "^[a-z0-9][a-z0-9-]{0,62}$"

_ETAG: Final = '"[!#-~\\u0080-\\u00ff]*"'
ETAG: Final = f"^{_ETAG}$"
_GIVEN: Final = f"[ \\t]*(W/)?{_ETAG}[ \\t]*"
ETAGS: Final = f"^([ \\t]*\\*[ \\t]*|{_GIVEN}(,{_GIVEN})*)$"
"""The value of If-Match: a list of ETags, or ``*``."""

NAME: Final = "^(?!\\.{1,2}$)[^\\u0000]+$"
"""A name that a znode can carry."""

# The canonical spelling of a byte in an id: itself if Kafka's sanitizing keeps it, else ``~HH``; no NUL, valid UTF-8.
_TAIL: Final = "~[89AB][0-9A-F]"
_CHARACTER: Final = "|".join(
    (
        "[A-Za-z0-9._-]",
        "~(0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-F])",
        f"~(C[2-9A-F]|D[0-9A-F]){_TAIL}",
        f"(~E0~[AB][0-9A-F]|~E[1-9A-CEF]{_TAIL}|~ED~[89][0-9A-F]){_TAIL}",
        f"(~F0~[9AB][0-9A-F]|~F[1-3]{_TAIL}|~F4~8[0-9A-F])({_TAIL}){{2}}",
    )
)
_ID_NAME: Final = f"(?!\\.{{1,2}}(,|$))({_CHARACTER})+"
_USER: Final = f"user(={_ID_NAME})?"
_CLIENT_ID: Final = f"client-id(={_ID_NAME})?"
_OCTET: Final = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IP: Final = f"ip(={_OCTET}(\\.{_OCTET}){{3}})?"

CONFIG_ID: Final = f"^{_USER}(,{_CLIENT_ID})?$"
"""Ids of entities with client configs."""
QUOTA_ID: Final = f"^({_USER}(,{_CLIENT_ID})?|{_CLIENT_ID}|{_IP})$"
"""Ids of entities with quotas."""
_TOPIC: Final = "topic(=[A-Za-z0-9._-]{1,249})?"
_BROKER: Final = "broker(=(0|[1-9][0-9]{0,9}))?"
_KRAFT: Final = f"(group|client-metrics)={_ID_NAME}"
_ANY: Final = (
    f"{_USER}(,{_CLIENT_ID})?|{_CLIENT_ID}|ip(={_ID_NAME})?|{_TOPIC}|{_BROKER}|(group|client-metrics)(={_ID_NAME})?"
)
ANY_ID: Final = f"^({_ANY})$"
"""Ids of all entities, with or without a facet."""
AUDITED_ID: Final = f"^({_ANY}|cluster)$"
"""Ids of everything with changes in the trail."""
ROLLUP_ID: Final = f"^({_ANY})?$"
"""Ids of all entities; empty for the whole cluster."""
RESOURCE_ID: Final = f"^(topic=(?!\\.{{1,2}}$)[A-Za-z0-9._-]{{1,249}}|{_BROKER}|{_KRAFT})$"
"""Ids of entities with the facet ``configs``."""
RESOURCE_NAME: Final = "^(?!\\.{1,2}$)[^\\u0000]*$"
"""Names of topics, brokers, groups and subscriptions, and the empty one."""
TIME: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
"""RFC 3339, with an offset."""
IDEMPOTENCY_KEY: Final = "^[!-~]([ -~]{0,253}[!-~])?$"
"""Printable ASCII. Blanks at the ends of a header are not part of it."""
PRINCIPAL: Final = "^(User|Group):[^\\u0000-\\u001f\\u007f]+$"
RESOURCE: Final = "^[a-z-]+(:[^\\u0000]*)?$"
"""A resource in a query: ``topic:orders``, ``cluster``."""
