"""Reads the settings, and reports each invalid one on a line, without a traceback and without secrets."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer
import yaml
from pydantic import ValidationError
from pydantic_settings import SettingsError

from confplane.cli.output import echo
from confplane.security.authenticator import AdminToken
from confplane.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

_FILE_VARIABLE = "CONFPLANE_SETTINGS_FILE"
_DEV_FILE = Path(".confplane/settings.yaml")
_INVALID = 2

_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?"
_CONNECT = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/|(?:/[^/\s]+)+)?")


def load(settings_file: Path | None = None) -> Settings:
    """Return the settings of the environment and of the file.

    Args:
        settings_file: Replaces the file that CONFPLANE_SETTINGS_FILE names.

    Raises:
        typer.Exit: The settings are not valid; each problem was printed, and the exit code is 2.
    """
    if settings_file is not None:
        os.environ[_FILE_VARIABLE] = str(settings_file)
    try:
        settings = Settings()
        problems = _unusable(settings)
        if not problems:
            return settings
    except ValidationError as error:
        problems = [_line(problem["loc"], problem["msg"]) for problem in error.errors(include_input=False)]
        problems += _file_hint(error)
    except (FileNotFoundError, SettingsError) as error:
        problems = [str(error)]
    except yaml.YAMLError as error:
        problems = [f"{os.environ.get(_FILE_VARIABLE)} is not valid YAML: {' '.join(str(error).split())}"]
    raise refuse(problems)


def check_token(settings: Settings) -> None:
    """Read the token's file once, so that an invalid token is reported like any other invalid setting.

    Raises:
        typer.Exit: The file can't be read or holds no usable token.
    """
    if settings.admin_token_file is None:
        return
    try:
        AdminToken.from_file(settings.admin_token_file)
    except OSError as error:
        message = f"{settings.admin_token_file} can't be read: {error.strerror}"
    except UnicodeDecodeError:
        message = f"{settings.admin_token_file} is not a text file"
    except ValueError as error:
        message = f"{settings.admin_token_file}: {error}"
    else:
        return
    raise refuse([_line(["admin_token_file"], message)])


def refuse(problems: Iterable[str]) -> typer.Exit:
    """Print the problems of the settings, a line each, and return the exit with their code."""
    echo("The settings are not valid:", err=True)
    for problem in problems:
        echo(f"  {problem}", err=True)
    return typer.Exit(_INVALID)


def _file_hint(error: ValidationError) -> list[str]:
    """Return the option that names a settings file, if settings are missing and no file is named."""
    if _FILE_VARIABLE in os.environ or all(problem["type"] != "missing" for problem in error.errors()):
        return []
    dev = f" `make run` has its settings in {_DEV_FILE}." if _DEV_FILE.is_file() else ""
    return [f"No settings file is named. Use --settings-file FILE, or the variable {_FILE_VARIABLE}.{dev}"]


def _unusable(settings: Settings) -> list[str]:
    """Find settings of the right type that can't be addresses.

    They are never quoted, because they may hold a password.
    """
    problems = []
    dsns = {"dsn": settings.postgres.dsn, "migration_dsn": settings.postgres.migration_dsn}
    for name, dsn in dsns.items():
        if dsn is not None and not _is_postgres_url(dsn.get_secret_value()):
            problems.append(
                _line(["postgres", name], "is not of the form postgresql://user:password@host:port/database")
            )
    for name, cluster in settings.clusters.items():
        if not _CONNECT.fullmatch(cluster.zookeeper):
            problems.append(
                _line(["clusters", name, "zookeeper"], "is not of the form host:port[,host:port...][/chroot]")
            )
    return problems


def _is_postgres_url(dsn: str) -> bool:
    try:
        parts = urlsplit(dsn)
        return parts.scheme in {"postgresql", "postgres"} and bool(parts.username) and (parts.port or 1) > 0
    except ValueError:  # a port that is not a number, brackets that do not close
        return False


def _line(location: Iterable[int | str], message: str) -> str:
    names = [str(part) for part in location if part != "[key]"]
    if not names:
        return message.removeprefix("Value error, ")
    variable = "CONFPLANE_" + "__".join(name.upper() for name in names)
    return f"{'.'.join(names)}: {message.removeprefix('Value error, ')} (environment variable {variable})"
