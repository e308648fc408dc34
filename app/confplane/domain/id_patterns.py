"""Regular expressions of entity ids, for the specification, the Terraform module and the commands.

They keep to the common part of the syntaxes of Python, ECMA 262 and RE2, which has no lookahead.
"""

from __future__ import annotations

from typing import Final

# The canonical spelling of a byte in an id: itself if Kafka's sanitizing keeps it, else ``~HH``; no NUL, valid UTF-8.
_TAIL: Final = "~[89AB][0-9A-F]"
_ESCAPED: Final = "|".join(
    (
        "~(0[1-9A-F]|1[0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-F])",
        f"~(C[2-9A-F]|D[0-9A-F]){_TAIL}",
        f"(~E0~[AB][0-9A-F]|~E[1-9A-CEF]{_TAIL}|~ED~[89][0-9A-F]){_TAIL}",
        f"(~F0~[9AB][0-9A-F]|~F[1-3]{_TAIL}|~F4~8[0-9A-F])({_TAIL}){{2}}",
    )
)
# Any name except the empty one, ``.`` and ``..``.
_NAME: Final = f"(\\.{{0,2}}([A-Za-z0-9_-]|{_ESCAPED})|\\.{{3}})([A-Za-z0-9._-]|{_ESCAPED})*"
_USER: Final = f"user(={_NAME})?"
_CLIENT_ID: Final = f"client-id(={_NAME})?"
_OCTET: Final = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IP: Final = f"ip(={_OCTET}(\\.{_OCTET}){{3}})?"
_TOPIC: Final = "[A-Za-z0-9_-][A-Za-z0-9._-]{0,248}|\\.[A-Za-z0-9_-][A-Za-z0-9._-]{0,247}|\\.\\.[A-Za-z0-9._-]{1,247}"
_BROKER: Final = "broker(=(0|[1-9][0-9]{0,9}))?"

CONFIG_ID: Final = f"^{_USER}(,{_CLIENT_ID})?$"
"""Ids of entities with client configs."""
QUOTA_ID: Final = f"^({_USER}(,{_CLIENT_ID})?|{_CLIENT_ID}|{_IP})$"
"""Ids of entities with quotas."""
RESOURCE_ID: Final = f"^(topic=({_TOPIC})|{_BROKER}|(group|client-metrics)={_NAME})$"
"""Ids of entities with the facet ``configs``."""
ANY: Final = (
    f"{_USER}(,{_CLIENT_ID})?|{_CLIENT_ID}|ip(={_NAME})?|topic(=[A-Za-z0-9._-]{{1,249}})?|{_BROKER}"
    f"|(group|client-metrics)(={_NAME})?"
)
"""Ids of all entities, with or without a facet, without anchors."""
ANY_ID: Final = f"^({ANY})$"
"""Ids of all entities, with or without a facet."""
