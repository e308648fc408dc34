"""The choice between JSON and another form of a response, by the header Accept."""

from __future__ import annotations

from typing import Final

_JSON: Final = "application/json"


def prefers(accept: str | None, media_type: str) -> bool:
    """Return True if an Accept header ranks a media type above JSON (RFC 9110). JSON wins a tie."""
    if accept is None:
        return False
    return _quality(accept, media_type) > _quality(accept, _JSON)


def _quality(accept: str, wanted: str) -> float:
    """Return the weight of a media type: that of the most specific range that covers it, or 0 if no range does."""
    found = (0, 0.0)
    for item in accept.split(","):
        media_range, *parameters = (part.strip().lower() for part in item.split(";"))
        ranges = {"*/*": 1, f"{wanted.partition('/')[0]}/*": 2, wanted: 3}
        if media_range in ranges:
            found = max(found, (ranges[media_range], _weight(parameters)))
    return found[1]


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                weight = float(value)
            except ValueError:
                return 0.0
            return weight if 0 <= weight <= 1 else 0.0
    return 1.0
