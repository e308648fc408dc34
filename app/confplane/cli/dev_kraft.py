"""``confplane dev --kraft``: imports a Kafka cluster into the embedded stack, and prints a guide to the first steps."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from confplane.devstack.stack import Stack

_CLUSTER = "default"


def observe(stack: Stack) -> int:
    """Check the Kafka cluster and import its configs, or the changes since the last run; return the exit code."""
    typer.echo("Looking at the Kafka cluster. Nothing is sent to it but describes")
    for command in (["check"], ["import", "--apply"]):
        code = 0 if stack.cancelled else stack.command("target", *command, "--cluster", _CLUSTER)
        if code:
            return code
    return 0


def guide(stack: Stack, clusters: str) -> str:
    """Return commands to try first, for a POSIX shell.

    Args:
        stack: The running stack.
        clusters: A curl line, up to ``/v1/clusters``.
    """
    cluster = f"{clusters}/{_CLUSTER}"
    settings = f"--cluster {_CLUSTER} --settings-file {shlex.quote(str(stack.settings_file))}"
    steps = {
        "all client quotas": f"{cluster}/client-quotas",
        "one user's quotas, each with its level": f"{cluster}/client-quotas/user=NAME/effective",
        "a topic's configs, each with its level": f"{cluster}/configs/topic=NAME/effective",
        "the default of all brokers": f"{cluster}/configs/broker",
        "brokers and topics that deviate from most": (
            f"confplane rollups run drift {settings} && confplane rollups show drift {settings}"
        ),
        "changes by others, from now on": f"{cluster}/audit",
        "the freshness of all this": cluster,
    }
    lines = [f"  # {purpose}\n  {command}" for purpose, command in steps.items()]
    return (
        "Confplane follows the Kafka cluster, and has written nothing to it. Look in another shell:\n\n"
        + "\n\n".join(lines)
        + "\n\nClient configs (KIP-649) can be written here; everything else is altered with Kafka's own tools."
    )
