"""``confplane profiles``: the file of profiles, shown and changed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import typer

from app.cli.remote import session
from app.cli.remote.output import print_table
from app.cli.remote.profiles import Profile, ProfileError, Profiles, file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def run(work: Callable[[], None]) -> typer.Exit:
    """Run a command on the file, print the reason of a failure, and return the exit with its code."""

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


def put(
    name: str,
    url: str,
    *,
    cluster: str,
    token_file: Path | None,
    token_command: str | None,
    ca_file: Path | None,
    certificate_file: Path | None,
    key_file: Path | None,
) -> None:
    """Write a profile, or replace it; paths are made absolute, because commands run in any directory.

    Raises:
        ProfileError: The URL is none, both places of a token are given, or the file can't be used.
    """
    if not url.startswith(("http://", "https://")):
        raise ProfileError(f"--url {url} is no URL: give http://HOST:PORT or https://HOST")
    if token_file is not None and token_command is not None:
        raise ProfileError("Give either --token-file or --token-command")
    try:
        command = None if token_command is None else tuple(shlex.split(token_command))
    except ValueError as error:
        raise ProfileError(f"--token-command can't be read: {error}") from None
    if command == ():
        raise ProfileError("--token-command is empty")
    paths = [None if each is None else each.absolute() for each in (token_file, ca_file, certificate_file, key_file)]
    token_path, ca_path, certificate_path, key_path = paths
    made = Profile(url, cluster, token_path, command, ca_path, certificate_path, key_path)
    stored = Profiles.read()
    Profiles(stored.current or name, stored.named | {name: made}).write()
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
    """Remove a profile; without its current profile the file has none.

    Raises:
        ProfileError: There is no such profile, or the file can't be used.
    """
    stored = Profiles.read()
    stored.named_or_raise(name)
    left = {each: profile for each, profile in stored.named.items() if each != name}
    Profiles(None if stored.current == name else stored.current, left).write()
    typer.echo(f"Removed the profile {name}")
