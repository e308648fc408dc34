"""The help of ``confplane configs``, from the table of its options."""

from __future__ import annotations

import textwrap
from typing import Final

from confplane.cli.remote.configs.options import GROUPS

_WIDTH: Final = 110
_COLUMN: Final = 26

_HEAD: Final = """\
Usage: confplane configs (--describe | --alter) ENTITIES [OPTIONS]

Describe and change configs with the options of kafka-configs.sh, through a Confplane service. Quotas and client
configs of one command are one change. docs/kafka-configs.md lists what differs from Kafka's tool.
"""
_TAIL: Final = """\
Examples:
  confplane configs --describe --user alice
  confplane configs --alter --topic orders --add-config 'cleanup.policy=[compact,delete],retention.ms=86400000'
  confplane configs --alter --entity-type users --entity-name alice --delete-config producer_byte_rate

Exit codes: 0 done; 1 refused, or the service did not answer, or an entity can't be read; 3 the answer to a change was
lost, and it may be done or not.
"""


def text() -> str:
    """Return the help."""
    parts = [_HEAD]
    for group in GROUPS:
        parts.append(f"{group.title}:")
        for name, option in group.options.items():
            spelled = f"--{name}" if option.metavar is None else f"--{name} {option.metavar}"
            explained = textwrap.wrap(option.help, _WIDTH - _COLUMN - 2)
            first = explained.pop(0) if len(spelled) < _COLUMN else ""
            parts.append(f"  {spelled:{_COLUMN}}{first}".rstrip())
            parts += [f"  {'':{_COLUMN}}{line}" for line in explained]
        parts.append("")
    return "\n".join([*parts, _TAIL])
