"""Options that several commands on the stores share, and the settings that they name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import typer

if TYPE_CHECKING:
    from confplane.settings import Settings

SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings-file", metavar="FILE", help="The YAML file, as CONFPLANE_SETTINGS_FILE names it."),
]
Local = Annotated[
    bool,
    typer.Option(
        "--local",
        help="Use ZooKeeper and Postgres directly, with the service's settings, instead of the API. The service need"
        " not run. This is the default with --settings-file, and if CONFPLANE_SETTINGS_FILE or CONFPLANE_POSTGRES__DSN"
        " is set, unless --profile, CONFPLANE_PROFILE or CONFPLANE_URL names a service.",
    ),
]
Apply = Annotated[bool, typer.Option("--apply", help="Write the changes; without this option nothing is written.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, one object on each line.")]
ClusterName = Annotated[
    str, typer.Option("--cluster", metavar="NAME", help="The cluster, by its name in the settings.")
]


def existing_file(text: str) -> Any:
    """Return an option that names a file which can be read, with its help."""
    return typer.Option(metavar="FILE", exists=True, dir_okay=False, readable=True, help=text)


def id_argument(noun: str) -> Any:
    """Return an argument that is the id of a token or a grant."""

    def parsed(text: str) -> UUID:
        try:
            return UUID(text)
        except ValueError:
            raise typer.BadParameter(
                f"{text!r} is not an id of a {noun}. `confplane {noun}s list` shows the ids."
            ) from None

    return typer.Argument(metavar="ID", parser=parsed, help=f"The id of the {noun}, as the list shows it.")


_OF_SETTINGS: Final = ("CONFPLANE_SETTINGS_FILE", "CONFPLANE_POSTGRES__DSN")
_OF_SERVICE: Final = ("CONFPLANE_PROFILE", "CONFPLANE_URL")


def is_local(local: bool, settings_file: Path | None, profile: str | None) -> bool:  # noqa: FBT001 - three options
    """Return True if a command that exists in both forms uses the stores instead of the API.

    Raises:
        typer.BadParameter: The options name both.
    """
    if local or settings_file is not None:
        if profile is not None:
            raise typer.BadParameter("--local and --settings-file do not go with --profile.", param_hint="--profile")
        return True
    named = profile is not None or any(name in os.environ for name in _OF_SERVICE)
    return not named and any(name in os.environ for name in _OF_SETTINGS)


def load_settings(settings_file: Path | None) -> Settings:
    """Return the settings of the environment and of the file.

    Raises:
        typer.Exit: The settings are not valid; each problem was printed, and the exit code is 2.
    """
    from confplane.cli import settings_errors  # noqa: PLC0415 - the base package alone has no pydantic

    return settings_errors.load(settings_file)
