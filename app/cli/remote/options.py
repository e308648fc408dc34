"""Options and arguments that commands over the API share."""

from __future__ import annotations

from typing import Annotated

import typer

ProfileName = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="The profile of the service.", show_default="the current profile"),
]
ClusterName = Annotated[
    str | None,
    typer.Option("--cluster", metavar="NAME", help="The cluster.", show_default="the cluster of the profile"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the API has it.")]
EntityName = Annotated[
    str,
    typer.Argument(
        metavar="ENTITY",
        help="The entity: user=alice, user=alice,client-id=billing, ip=10.0.0.1, topic=orders, broker=0; a type alone"
        " is the default entity.",
        show_default=False,
    ),
]
