"""The command ``confplane`` and its subcommands. The module of a subcommand is imported when the subcommand is named.

The modules in ``remote`` have the commands that use the API of a service, which need the base package alone. The other
commands need the extra ``server``: their modules import the service only when a command runs, so that its help is
complete without the extra.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

import confplane
from confplane.cli import termination
from confplane.cli.command_group import PlainGroup
from confplane.cli.output import echo
from confplane.gc_tuning import tune_gc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_DESCRIPTION = """\
HTTP control plane for the dynamic configuration of Apache Kafka clusters.

`confplane dev` brings everything up on this machine; `confplane serve` runs against your own
ZooKeeper and Postgres. Commands over the API need the URL of a service alone.
"""

_FAILED: Final = 1
_OUTPUT_FAULTS: Final = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF}
_MODULES: Final[dict[str, dict[str, dict[str, str]]]] = {
    "Configs, over the API of a service": {
        "remote.read_commands": {
            "get": "Show the quotas and configs that are set on an entity, or list entities.",
            "effective": "Show the effective values of an entity, each with its level.",
            "history": "Show the changes of an entity, newest first: who changed which key, from which value to which,"
            " and why.",
        },
        "remote.diff_commands": {
            "diff": "Show the keys that differ: of an entity between two moments, or of a cluster and a manifest."
        },
        "remote.change_commands": {
            "set": "Set keys of an entity, in one change; other keys stay as they are.",
            "delete": "Remove keys of an entity, in one change. A key that is not set is refused.",
        },
        "remote.audit_commands": {
            "audit": "Search the trail of all changes, newest first, or show one change with its values."
        },
        "remote.watch_commands": {"watch": "Print changes as they happen, until you press Ctrl-C."},
        "remote.about_commands": {
            "whoami": "Show the principal of the token, the source of the token, and the grants that apply.",
            "clusters": "List the clusters of the service, each with its state and its warnings.",
            "login": "Log in at the issuer of the service, in any browser, and store the tokens.",
            "logout": "Revoke the tokens of a login at the issuer, and remove them.",
        },
        "remote.revert_commands": {
            "revert": "Undo changes: set each key to its value before them. The command shows the differences and asks"
            " for confirmation.",
        },
        "remote.schedule_commands": {"schedules": "Temporary changes, and their ends (docs/temporary-changes.md)."},
        "remote.request_commands": {"requests": "Changes that two people agree on (docs/change-requests.md)."},
        "remote.drift_commands": {
            "drift": "Differences between a Kafka cluster without ZooKeeper (Kafka 4) and the configs written through"
            " Confplane.",
        },
        "remote.configs.command": {"configs": "Describe and change configs with the options of kafka-configs.sh."},
        "remote.configs.shell": {
            "shell": "Run command lines of `confplane configs` one after another, on one connection."
        },
        "export_commands": {
            "export": "Write all quotas and configs of a cluster, or those of some entities, to a file or to standard"
            " output.",
        },
        "remote.load_commands": {
            "load": "Set the quotas and configs of an export or a manifest, and keep all other keys."
        },
        "remote.manifest_commands": {
            "plan": "Show what a manifest would create, change and delete in a cluster.",
            "apply": "Make a cluster what a manifest says, by its plan.",
        },
        "remote.profile_commands": {
            "profiles": "Profiles: named services, each with a cluster and the source of its token."
        },
    },
    "Administration, over the API or on ZooKeeper and Postgres": {
        "freeze_commands": {
            "freeze": "Stop all writes to a cluster's configs, until `confplane thaw`.",
            "thaw": "Allow writes to a frozen cluster's configs again.",
        },
        "token_commands": {
            "tokens": "API tokens: credentials of users, portals, pipelines and applications (docs/access.md)."
        },
        "grant_commands": {"grants": "Grants: who may do what (docs/access.md)."},
        "remote.webhook_commands": {
            "webhooks": "Webhooks: changes sent to URLs and chats as they happen (docs/webhooks.md)."
        },
    },
    "The service": {
        "service_commands": {
            "dev": "Run the service on embedded ZooKeeper and Postgres, until Ctrl-C.",
            "serve": "Run the service on ZooKeeper and Postgres given by settings.",
            "migrate": "Create or upgrade the tables, and grant the service's role its rights.",
            "openapi": "Print the OpenAPI description of the API as YAML.",
        },
        "policy_commands": {"policy": "Check and test policy files (docs/policies.md)."},
    },
    "Operators, on ZooKeeper and Postgres directly": {
        "doctor_commands": {
            "doctor": "Check settings, stores, rights, clocks, certificates and tokens, and show the command that"
            " fixes each problem.",
        },
        "backup_commands": {
            "backup": "Write all configs and the trail to an archive, while the service runs.",
            "restore": "Write the content of an archive to both stores.",
            "verify": "Check an archive: checksums, completeness, and the agreement of both stores.",
        },
        "store_commands": {
            "adopt-store": "Accept the state of a ZooKeeper that was restored to an earlier time.",
            "secrets": "Passwords of brokers, and the secrets that encode them.",
            "import": "Import configs from an older store into the znodes that brokers read.",
            "upgrade-keys": "Write configs that Kafka renamed under their new names, with the values of the old ones.",
            "compact": "Remove the znodes of users, clients and ips that hold no config any more.",
            "layout": "Show or change the layout of a cluster's client configs: the tree of znodes that stores them.",
        },
        "target_commands": {
            "target": "Follow a Kafka cluster without ZooKeeper (Kafka 4): its quotas, its configs, and each change."
        },
        "rollup_commands": {"rollups": "Statistics of a whole cluster and all of its history, computed by Spark."},
    },
}
"""The modules of commands, by the heading of their commands in the help. Each module has the first sentence of each
command's help by its name, so that the help of all commands imports none of them."""
_NAMES: Final = {name: module for modules in _MODULES.values() for module, texts in modules.items() for name in texts}


@cache
def _commands_of(module: str) -> Any:
    """Import a module, and make all of its commands once."""
    skip_httpx_cli()
    return typer.main.get_command(import_module(f"confplane.cli.{module}").commands)


def skip_httpx_cli() -> None:
    """Make httpx's own command line appear absent. It takes two thirds of the import time of httpx."""
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None: the import fails


class _Commands(PlainGroup):
    """Imports a subcommand when it is named, and reports unusable settings and missing extras of any subcommand."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for panel, modules in _MODULES.items():
            for texts in modules.values():
                for name, text in texts.items():
                    self.add_command(TyperCommand(name, help=text, rich_help_panel=panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Import the named subcommand; ``ctx`` is click's context, from typer's own copy of click."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            group = _commands_of(_NAMES[name])
            text = command.help
            command = group.commands[name] if isinstance(group, TyperGroup) else group
            command.help = command.help or text  # of a group
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run a subcommand."""
        try:
            return super().invoke(ctx)
        except ImportError as error:
            raise _absent(error) from None
        except ValueError as error:
            problems = _unusable(error)
            if problems is None:
                raise
            from confplane.cli import settings_errors

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
        echo(f"confplane {confplane.__version__}")
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
    _replace_closed_streams()
    if "_CONFPLANE_COMPLETE" in os.environ:
        skip_httpx_cli()
        from confplane.cli.remote import completion

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


def _replace_closed_streams() -> None:
    """Replace standard streams that the caller has closed: input is empty then, and output can't be written."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")


def _end_output(error: OSError) -> NoReturn:
    """Exit if standard output can't be written; silently if its reader has left, as other programs do."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it again when it ends
    if error.errno != errno.EPIPE:
        echo(f"The output can't be written: {error.strerror}. Changes that the command made stay.", err=True)
    raise SystemExit(_FAILED) from None


def _absent(error: ImportError) -> typer.Exit:
    """Print the extra that provides a module, and return the exit of a failure.

    Raises:
        ImportError: The module belongs to this package, or lacks a name although this Python is new enough.
    """
    if error.name is None or error.name.split(".")[0] == "confplane":
        raise error
    if sys.version_info >= (3, 11) and not isinstance(error, ModuleNotFoundError):
        raise error
    if sys.version_info >= (3, 11):
        echo(f"This command needs {error.name}: pip install 'confplane[server]'", err=True)
    else:
        running = ".".join(map(str, sys.version_info[:3]))
        echo(f"This command needs the service, and thus Python 3.11 or later; this is Python {running}", err=True)
    return typer.Exit(_FAILED)


def _unusable(error: ValueError) -> Iterable[str] | None:
    """Return the problems of unusable settings; None for any other error."""
    settings = sys.modules.get("confplane.settings")  # no settings were read before they are imported
    if settings is None or not isinstance(error, settings.UnusableSettingsError):
        return None
    problems: Iterable[str] = error.problems
    return problems
