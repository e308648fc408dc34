"""``confplane profiles``: shows and changes the file of profiles."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from confplane.cli.remote import session
from confplane.cli.remote.output import print_table
from confplane.cli.remote.profiles import ProfileError, Profiles, check_url, file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confplane.cli.remote.profiles import Profile


def run(work: Callable[[], None]) -> typer.Exit:
    """Run a command on the file, print the reason for a failure, and return the exit with its code."""

    def done() -> int:
        work()
        return session.DONE

    return typer.Exit(session.code_of(done))


def show() -> None:
    """Print all profiles."""
    stored = Profiles.read()
    if not stored.named:
        typer.echo(f"There is no profile in {file()}; write one with `confplane profiles set NAME --url URL`", err=True)
        return
    print_table(
        ("", "NAME", "URL", "CLUSTER", "TOKEN"),
        [
            ("*" if name == stored.current else "", name, each.url, each.cluster, each.token_source)
            for name, each in stored.named.items()
        ],
    )


def put(name: str, made: Profile, token_command: str | None) -> None:
    """Write a profile, or replace it; paths are made absolute, because commands run in any directory.

    Args:
        name: The name of the profile.
        made: The profile, without a command.
        token_command: A program and its arguments, quoted as in a shell.

    Raises:
        ProfileError: The URL is not valid, several sources of a token are given, or the file can't be used.
    """
    check_url(made.url, "--url")
    if sum(each is not None for each in (made.token_file, token_command, made.client_id)) > 1:
        raise ProfileError("Give one of --token-file, --token-command and --client-id")
    try:
        command = None if token_command is None else tuple(shlex.split(token_command))
    except ValueError as error:
        raise ProfileError(f"--token-command can't be read: {error}") from None
    if command == ():
        raise ProfileError("--token-command is empty")
    stored = Profiles.read()
    whole = replace(
        made,
        token_command=command,
        token_file=_absolute(made.token_file),
        ca_file=_absolute(made.ca_file),
        certificate_file=_absolute(made.certificate_file),
        key_file=_absolute(made.key_file),
    )
    Profiles(stored.current or name, stored.named | {name: whole}).write()
    typer.echo(f"Wrote the profile {name} to {file()}")


def use(name: str) -> None:
    """Make a profile the current profile.

    Raises:
        ProfileError: There is no such profile, or the file can't be used.
    """
    stored = Profiles.read()
    stored.named_or_raise(name)
    Profiles(name, stored.named).write()
    typer.echo(f"The current profile is {name}")


def remove(name: str) -> None:
    """Remove a profile. If it is the current profile, the file has no current profile afterwards.

    Raises:
        ProfileError: There is no such profile, or the file can't be used.
    """
    stored = Profiles.read()
    stored.named_or_raise(name)
    left = {each: profile for each, profile in stored.named.items() if each != name}
    Profiles(None if stored.current == name else stored.current, left).write()
    typer.echo(f"Removed the profile {name}")


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()
