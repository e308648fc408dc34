"""Postgres without root, for processes that run as root, as in most containers: Postgres refuses to run as root.

The server then runs as the user ``postgres`` if the machine has one, else as ``nobody``. That user can often not reach
a checkout below root's home. Such directories are not opened to everybody: if needed, the process gets the one
capability that gives it access (``CAP_DAC_OVERRIDE``).
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from typing import TYPE_CHECKING

from confplane.devstack.errors import DevStackError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_OTHERS_PASS = stat.S_IROTH | stat.S_IXOTH


def _user() -> pwd.struct_passwd | None:
    """Return the user to run as, or None if this process does not run as root and nothing changes."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise DevStackError("Postgres refuses to run as root, and this machine has neither a user postgres nor nobody")


def own(path: Path) -> None:
    """Give a file or an empty directory to the user that Postgres runs as.

    Raises:
        DevStackError: The system refuses the change of owner.
    """
    user = _user()
    if user is None:
        return
    try:
        os.chown(path, user.pw_uid, user.pw_gid)
    except OSError as error:  # a container that maps no other user, a file system with fixed owners
        raise DevStackError(
            f"Postgres refuses to run as root, and {path} can't be given to the user {user.pw_name}: {error.strerror}. "
            "Run as an ordinary user."
        ) from error


def command(argv: Sequence[str], *, needs: Iterable[Path]) -> list[str]:
    """Return the command line that runs ``argv`` as that user, or ``argv`` itself if this process does not run as root.

    Args:
        argv: The command.
        needs: Directories that the command must reach.

    Raises:
        DevStackError: util-linux's ``setpriv`` is missing.
    """
    user = _user()
    if user is None:
        return list(argv)
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise DevStackError(
            "Postgres refuses to run as root, and `setpriv`, which starts it as another user, is not installed. "
            "Run as an ordinary user, or install util-linux."
        )
    prefix = [setpriv, f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    if not all(_open_to_others(path) for path in needs):
        # initdb finds its sibling programs with access(2), which ignores the capabilities of ordinary users unless this
        # securebit is set.
        prefix += ["--securebits=+no_setuid_fixup", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    return [*prefix, "--", *argv]


def _open_to_others(directory: Path) -> bool:
    resolved = directory.resolve()
    return all(path.stat().st_mode & _OTHERS_PASS == _OTHERS_PASS for path in (resolved, *resolved.parents))
