"""Options that several commands on the stores share, and the settings that they name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from confplane.settings import Settings

SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings-file",
        metavar="FILE",
        help="The YAML file, as CONFPLANE_SETTINGS_FILE names it.",
        show_default=False,
    ),
]
Apply = Annotated[bool, typer.Option("--apply", help="Write the changes; without this option nothing is written.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as a JSON object.")]
ClusterName = Annotated[
    str, typer.Option("--cluster", metavar="NAME", help="The cluster, by its name in the settings.")
]


def load_settings(settings_file: Path | None) -> Settings:
    """Return the settings of the environment and of the file.

    Raises:
        typer.Exit: The settings are not valid; each problem was printed, and the exit code is 2.
    """
    from confplane.cli import settings_errors  # noqa: PLC0415 - the base package alone has no pydantic

    return settings_errors.load(settings_file)
