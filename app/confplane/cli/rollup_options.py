"""Options that several commands of ``confplane rollups`` share, and readers of the options.

Each reader raises ``typer.BadParameter`` for a value that is not valid, with the option and the rule.
"""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import urlsplit

import typer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_Read = TypeVar("_Read")

Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="The Spark master.", show_default="local[*], or the master of spark-submit"
    ),
]
ReadDsn = Annotated[
    str | None,
    typer.Option(
        "--read-dsn",
        metavar="DSN",
        help="Read this standby in place of Postgres, such as `host=standby`; what the connection string lacks, the"
        " password among it, is that of the settings. The primary alone is written to.",
        show_default=False,
    ),
]
MaxConnections = Annotated[
    int | None,
    typer.Option(
        "--max-connections",
        min=6,
        metavar="N",
        help="The most connections to Postgres at a time; tasks then read several parts in turn.",
        show_default="as many as the tasks of a session at a time need",
    ),
]


def pair_of(given: str) -> tuple[str, str]:
    """Read ``COLUMN=VALUE`` of ``--where``."""
    column, equals, value = given.partition("=")
    if not equals:
        raise typer.BadParameter(f"{given!r} is not of the form COLUMN=VALUE", param_hint="--where")
    return column, value


def day_of(given: str | None) -> datetime | None:
    """Read the date of ``--since``, as its midnight in UTC."""
    if given is None:
        return None
    try:
        found = date.fromisoformat(given)
    except ValueError:
        raise typer.BadParameter("not a date such as 2026-01-31", param_hint="--since") from None
    return datetime(found.year, found.month, found.day, tzinfo=timezone.utc)


def moment_of(given: str | None) -> datetime | None:
    """Read the time of ``--as-of``."""
    if given is None:
        return None
    try:
        found = datetime.fromisoformat(given)
        if found.tzinfo is not None:
            return found.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        pass
    raise typer.BadParameter("not a time with its offset, such as 2026-01-31T12:00:00Z", param_hint="--as-of")


def read_yaml(path: Path | None, option: str, form: Callable[[object], _Read]) -> _Read | None:
    """Read the YAML file of an option; ``form`` raises ValueError if the content is not valid."""
    if path is None:
        return None
    import yaml  # noqa: PLC0415 - most commands read none

    from confplane.policy.repeated_keys import refuse_repeated_keys  # noqa: PLC0415 - most commands read none

    try:
        text = path.read_text(encoding="utf-8")
        refuse_repeated_keys(yaml.compose(text, yaml.SafeLoader))
        return form(yaml.safe_load(text))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        raise typer.BadParameter(f"{path}: {' '.join(str(error).split())}", param_hint=option) from None


def address_of(given: str | None) -> str | None:
    """Read the address of ``--base-url``."""
    if given is None:
        return None
    try:
        parts = urlsplit(given)
        is_plain = parts.scheme in {"http", "https"} and parts.hostname and "@" not in parts.netloc
    except ValueError:
        is_plain = False
    if not is_plain or "?" in given or "#" in given:
        raise typer.BadParameter("not an address such as https://confplane.example.com", param_hint="--base-url")
    return given
