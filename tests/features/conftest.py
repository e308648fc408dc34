"""The fixtures of tests/integration: features that are tested beyond the gate, in the same way."""

from __future__ import annotations

from tests.integration.conftest import (
    command_environment,
    copy,
    copy_chroot,
    kafka,
    no_brokers,
    opened,
    run,
    usual_mode,
)

__all__ = [
    "command_environment",
    "copy",
    "copy_chroot",
    "kafka",
    "no_brokers",
    "opened",
    "run",
    "usual_mode",
]
