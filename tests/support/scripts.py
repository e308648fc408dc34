"""Shell scripts run by a real shell, with one program replaced by one that records its words and its input."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_KEEP: Final = """\
#!/bin/sh
# Keeps a call as a folder: a file for each word, and the input where the words name it.
folder=$(mktemp -d "$KEPT/$(date +%s%N)-XXXX")
number=1000
for word; do number=$((number + 1)); printf %s "$word" > "$folder/$number"; done
case " $* " in *" /dev/stdin "*) cat > "$folder/input" ;; esac
"""


def calls(script: Path, program: str, folder: Path, **environment: str) -> list[list[str]]:
    """Run a script, and return the words of its calls of a program, in order.

    ``/dev/stdin`` is replaced by the name of a file with the call's input.
    """
    kept, programs = folder / "kept", folder / "programs"
    kept.mkdir()
    programs.mkdir()
    (programs / program).write_text(_KEEP)
    (programs / program).chmod(0o755)
    around = {"PATH": f"{programs}:/usr/bin:/bin", "KEPT": str(kept), **environment}
    subprocess.run(["sh", str(script)], env=around, check=True)
    found = []
    for call in sorted(kept.iterdir()):
        words = [each.read_bytes().decode() for each in sorted(call.iterdir()) if each.name != "input"]
        found.append([str(call / "input") if word == "/dev/stdin" else word for word in words])
    return found
