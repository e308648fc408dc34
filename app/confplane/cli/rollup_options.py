"""Options that several commands of ``confplane rollups`` share, and readers of the options.

Each reader raises ``typer.BadParameter`` for a value that is not valid, with the option and the rule.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated, Final, TypeVar
from urllib.parse import urlsplit

import typer

from confplane.cli.times import datetime_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
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


ClassArchive = Annotated[
    bool,
    typer.Option(
        "--class-archive/--no-class-archive",
        envvar="CONFPLANE_CLASS_ARCHIVE",
        help="On a small cluster, keep the classes that Java loads in ~/.cache/confplane (170 MB), once: later runs"
        " start sooner.",
    ),
]

READ_BY: Final = {
    "--as-of": ("compatibility", "activity"),
    "--capacity": ("quotas", "usage"),
    "--full": ("compatibility", "activity", "integrity"),
    "--since": ("compatibility", "activity", "integrity"),
    "--source": ("compatibility", "drift", "impact", "quotas", "activity", "integrity"),
    "--teams": ("activity",),
    "--usage": ("usage",),
    "--with": ("compare",),
}
"""Option of ``run`` -> the rollups that read it. A test compares this with the jobs."""

_EQUALITY: Final = re.compile(r"\s*(\w+)\s*=(.*)", re.ASCII | re.DOTALL)
_MASTER: Final = re.compile(r"local(\[(\*|[0-9]+)(, *[0-9]+)?\])?|spark://.+|k8s://.+|yarn")
_SKEW: Final = timedelta(minutes=5)
"""The most by which the clock of this machine may be behind that of Postgres, which decides in the end."""


def check_read(name: str, options: Iterable[str]) -> None:
    """Check that a rollup reads all options that are given.

    Raises:
        typer.BadParameter: It does not.
    """
    for option in options:
        if name not in READ_BY[option]:
            raise typer.BadParameter(
                f"{name} does not read {option}; it is for {' and '.join(READ_BY[option])}", param_hint=option
            )


def check_master(given: str | None) -> None:
    """Check the form of ``--master``."""
    if given is not None and not _MASTER.fullmatch(given):
        raise typer.BadParameter(
            f"{given!r} is not a Spark master. Use local[*], local[4], spark://HOST:PORT, yarn or k8s://HOST:PORT.",
            param_hint="--master",
        )


def check_past(moment: datetime, option: str) -> datetime:
    """Return a moment that is not in the future.

    Raises:
        typer.BadParameter: It is.
    """
    now = datetime.now(timezone.utc)
    if moment > now + _SKEW:
        raise typer.BadParameter(
            f"{moment.isoformat()} is in the future: it is {now.isoformat(timespec='seconds')}", param_hint=option
        )
    return moment


def conditions_of(given: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Read ``--where``: the values of columns, and the other conditions."""
    equal, others = dict[str, str](), list[str]()
    for each in given:
        if found := _EQUALITY.fullmatch(each):
            if found[1] in equal:
                raise typer.BadParameter(f"{found[1]} is given twice", param_hint="--where")
            equal[found[1]] = found[2]
        else:
            others.append(each)
    return equal, others


def day_of(given: str | None) -> datetime | None:
    """Read the date of ``--since``, as its midnight in UTC."""
    if given is None:
        return None
    try:
        found = date.fromisoformat(given)
    except ValueError:
        raise typer.BadParameter("not a date such as 2026-01-31", param_hint="--since") from None
    return check_past(datetime(found.year, found.month, found.day, tzinfo=timezone.utc), "--since")


def moment_of(given: str | None) -> datetime | None:
    """Read the time of ``--as-of``."""
    return None if given is None else check_past(datetime_of(given, "--as-of"), "--as-of")


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
