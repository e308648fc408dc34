"""Commands of ``confplane``, run one after another in one process, so that those that need Spark share a session.

``python -m tests.support.sequential_commands JSON``: the arguments of each command. It exits with the highest of their codes.
"""

from __future__ import annotations

import json
import sys

from confplane.cli.commands import cli


def main(commands: list[list[str]]) -> int:
    """Run them."""
    return max(cli(arguments, prog_name="confplane", standalone_mode=False) or 0 for arguments in commands)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
