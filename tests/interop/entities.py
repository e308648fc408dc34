"""The quota entities that both directions are tried with."""

from __future__ import annotations

from typing import Final

Names = dict[str, str | None]

ODD_NAMES: Final = (
    "CN=Alice, O=Acme/x y*\u00e9",
    "<default>",
    "n" * 200,
    "~+%2F%",
    "\U0001f511 \u5bc6\u94a5",
    "!@#$&()_-='\";:?\\[]{}|^`",
)
"""Names that Kafka writes another way in a path, and the real name ``<default>``, which is not the default."""

CLIENT_QUOTAS: Final[dict[str, float]] = {
    "producer_byte_rate": 1_048_576,
    "consumer_byte_rate": 9_007_199_254_740_991,
    "request_percentage": 12.3,
    "controller_mutation_rate": 0.0001,
}
_OF_EVERYBODY: Final = {**CLIENT_QUOTAS, "request_percentage": 12345.6, "controller_mutation_rate": 98765.0001}
"""Of the default entities: a small rate here would hold up the next topic that a test creates, for hours."""
IP_QUOTAS: Final[dict[str, float]] = {"connection_creation_rate": 2_147_483_647}


def entities(who: str) -> list[Names]:
    """Return an entity of each kind, those that have a name with ``who`` in it, and those with odd names.

    The defaults are among them: what is set on them must be nothing that the tests themselves run into.
    """
    odd: list[Names] = []
    for name in ODD_NAMES:
        odd += [{"user": name}, {"client-id": name}, {"user": name, "client-id": name[::-1]}]
    return [
        {"user": who},
        {"client-id": who},
        {"user": who, "client-id": who},
        {"user": who, "client-id": None},
        {"user": None},
        {"client-id": None},
        {"user": None, "client-id": who},
        {"user": None, "client-id": None},
        {"ip": "10.9.8.7" if who == "written" else "10.9.8.6"},
        {"ip": None},
        *odd,
    ]


def quotas_of(names: Names) -> dict[str, float]:
    """Return every quota that an entity can have, each with a value that shows how it is written."""
    if "ip" in names:
        return IP_QUOTAS
    return CLIENT_QUOTAS if any(name is not None for name in names.values()) else _OF_EVERYBODY


def label(names: Names) -> str:
    """Return a short name for a test's id."""
    return ",".join(f"{kind}={'default' if name is None else ascii(name)[1:20]}" for kind, name in names.items())
