"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
ClusterName = Annotated[
    str, typer.Option("--cluster", metavar="NAME", help="The cluster, by its name in the settings.")
]
