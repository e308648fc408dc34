"""The command ``confplane`` and its subcommands. The module of a subcommand is imported when the subcommand is named.

The base package depends only on httpx, rich and typer. Commands over the API run with it; the other commands need the
extra ``server``. A module of commands imports neither the client nor the service before a command runs, so that help is
fast and complete without any extra.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, NoReturn

import typer
from typer.core import TyperGroup

import confplane
from confplane.cli import termination
from confplane.cli.remote.start import lighten
from confplane.gc_tuning import tune_gc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_DESCRIPTION = """\
HTTP control plane for the dynamic configuration of Apache Kafka clusters.

`confplane dev` brings everything up on this machine; `confplane serve` runs against your own
ZooKeeper and Postgres. Commands over the API need the URL of a service alone.
"""

_FAILED: Final = 1
_OUTPUT_FAULTS: Final = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO}
_REMOTE: Final = "confplane.cli.remote."


class _Panel(NamedTuple):
    """Subcommands under one heading of the help."""

    title: str
    modules: dict[str, tuple[str, ...]]
    """Names of subcommands by the module that defines them in ``commands``."""


_PANELS: Final = (
    _Panel(
        "Configs, over the API of a service",
        {
            "confplane.cli.remote.read_commands": ("get", "effective", "history", "diff"),
            "confplane.cli.remote.change_commands": ("set", "delete"),
            "confplane.cli.remote.about_commands": ("audit", "whoami", "clusters", "login", "logout"),
            "confplane.cli.remote.revert_commands": ("revert",),
            "confplane.cli.remote.drift_commands": ("drift",),
            "confplane.cli.remote.configs_commands": ("configs", "shell"),
            "confplane.cli.export_commands": ("export",),
            "confplane.cli.remote.load_commands": ("load",),
            "confplane.cli.remote.profile_commands": ("profiles",),
        },
    ),
    _Panel(
        "The service",
        {"confplane.cli.service_commands": ("dev", "serve", "migrate", "openapi")},
    ),
    _Panel(
        "Operators, on ZooKeeper and Postgres directly",
        {
            "confplane.cli.store_commands": (
                "freeze",
                "thaw",
                "adopt-store",
                "secrets",
                "import",
                "upgrade-keys",
                "compact",
                "layout",
            ),
            "confplane.cli.target_commands": ("target",),
            "confplane.cli.rollup_commands": ("rollups",),
            "confplane.cli.access_commands": ("tokens", "grants"),
        },
    ),
)
_PLACES: Final = {
    name: (panel.title, module) for panel in _PANELS for module, names in panel.modules.items() for name in names
}


@cache
def _commands_of(module: str) -> Any:
    """Import a module and make all of its commands once: the help of the root shows each of them."""
    return typer.main.get_command(import_module(module).commands)


class _Commands(TyperGroup):
    """Finds a subcommand by its name, and reports unusable settings and missing extras of any subcommand."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all subcommands; ``ctx`` is click's context, from typer's own copy of click."""
        del ctx
        return list(_PLACES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a subcommand. Returns None if no subcommand has this name."""
        del ctx
        if cmd_name not in _PLACES:
            return None
        panel, module = _PLACES[cmd_name]
        if module.startswith(_REMOTE):
            lighten()
        group = _commands_of(module)
        command: Any = group.commands[cmd_name] if isinstance(group, TyperGroup) else group
        command.rich_help_panel = panel
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run a subcommand."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            raise _absent(error) from None
        except ValueError as error:
            problems = _unusable(error)
            if problems is None:
                raise
            from confplane.cli import settings_errors  # noqa: PLC0415 - the base package alone has no pydantic

            raise settings_errors.refuse(problems) from None


cli = typer.Typer(
    name="confplane",
    cls=_Commands,
    help=_DESCRIPTION,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value
    if wanted:
        typer.echo(f"confplane {confplane.__version__}")
        raise typer.Exit


@cli.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, or a completion for a shell.

    Args:
        arguments: The arguments; those of the process by default.
    """
    tune_gc()
    if "_CONFPLANE_COMPLETE" in os.environ:
        from confplane.cli.remote import completion  # noqa: PLC0415 - no other command needs it

        completion.prepare()
    try:
        with termination.sigterm_handled():
            try:
                cli(arguments, prog_name="confplane")
            finally:
                sys.stdout.flush()
    except OSError as error:
        if error.errno not in _OUTPUT_FAULTS:
            raise
        _end_output(error)


def _end_output(error: OSError) -> NoReturn:
    """Exit if standard output can't be written; silently if its reader has left, as other programs do."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it again when it ends
    if error.errno != errno.EPIPE:
        typer.echo(f"The output can't be written: {error.strerror}. Changes that the command made stay.", err=True)
    raise SystemExit(_FAILED) from None


def _absent(error: ModuleNotFoundError) -> typer.Exit:
    """Print the extra that provides a module, and return the exit of a failure.

    Raises:
        ModuleNotFoundError: The module belongs to this package.
    """
    if error.name is None or error.name.split(".")[0] == "confplane":
        raise error
    if sys.version_info < (3, 11):
        running = ".".join(map(str, sys.version_info[:3]))
        typer.echo(f"This command needs the service, and thus Python 3.11 or later; this is Python {running}", err=True)
    else:
        typer.echo(f"This command needs {error.name}: pip install 'confplane[server]'", err=True)
    return typer.Exit(_FAILED)


def _unusable(error: ValueError) -> Iterable[str] | None:
    """Return the problems of unusable settings; None for any other error."""
    settings = sys.modules.get("confplane.settings")  # no settings were read before they are imported
    if settings is None or not isinstance(error, settings.UnusableSettingsError):
        return None
    problems: Iterable[str] = error.problems
    return problems
