"""The classes of all commands and groups, for what typer does not do."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from confplane.cli.output import escape, json_wanted, print_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_UsageError: Final[Any] = typer.BadParameter.__base__
"""The base of all errors of arguments, from click or from typer's own copy of click."""


@contextmanager
def _json_errors(is_wanted: bool, usage_code: int | None = None) -> Iterator[None]:  # noqa: FBT001 - private
    """Print errors as JSON, those of arguments too, if this is wanted; errors of arguments may have another code."""
    before = json_wanted.set(is_wanted)
    try:
        yield
    except _UsageError as error:
        error.message = escape(error.message.removeprefix("Value error, "))
        error.exit_code = error.exit_code if usage_code is None else usage_code
        if not is_wanted:
            raise
        raise typer.Exit(print_error(error.format_message(), error.exit_code)) from None
    finally:
        json_wanted.reset(before)


class _PlainFlags:
    """Lets the help show a flag without a type, as it takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters; ``ctx`` is click's context, from typer's own copy of click."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of the class that this is mixed into
        for param in params:
            if isinstance(param, TyperOption) and param.is_flag and param.metavar is None:
                param.metavar = ""
        return params


class SingleValueCommand(_PlainFlags, TyperCommand):
    """A command in which only options that take a list may be repeated, instead of keeping the last value."""

    usage_code: ClassVar[int | None] = None
    """The exit code after errors of arguments; None: that of click."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command.

        Raises:
            typer.BadParameter: An option with a value is given twice, or a cluster is given without ``--cluster``.
        """
        with _json_errors("--json" in args and any(param.name == "as_json" for param in self.params), self.usage_code):
            return self._parsed(ctx, args)

    def _parsed(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not ctx.resilient_parsing:
            _, unexpected, given = self.make_parser(ctx).parse_args(args=list(args))
            for param in self.params:
                if not isinstance(param, TyperOption) or param.multiple or (param.is_flag and not param.secondary_opts):
                    continue
                if (times := sum(each is param for each in given)) > 1:
                    raise typer.BadParameter(f"It is given {times} times, but takes one value.", ctx=ctx, param=param)
            options = [param.name for param in self.params if isinstance(param, TyperOption)]
            takes_cluster = "cluster" in options and len(options) == len(self.params)
            if unexpected and takes_cluster and not any(param.is_eager for param in given):  # not for --help
                raise typer.BadParameter(
                    f"{self.name} takes only options. A cluster is named by --cluster {unexpected[0]}.", ctx=ctx
                )
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with ``--json`` its errors are JSON too."""
        with _json_errors(bool(ctx.params.get("as_json")), self.usage_code):
            return super().invoke(ctx)


class PipelineCommand(SingleValueCommand):
    """A command for pipelines: errors of arguments have a code of their own (``EX_USAGE`` of sysexits.h)."""

    usage_code = 64


class PlainGroup(_PlainFlags, TyperGroup):
    """A group whose flags and errors are shown as those of its commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options of the group."""
        with _json_errors(False):  # noqa: FBT003 - a group has no --json
            rest: list[str] = super().parse_args(ctx, args)
        return rest

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command."""
        with _json_errors(False):  # noqa: FBT003 - as above
            found: tuple[str | None, Any, list[str]] = super().resolve_command(ctx, args)
        return found


class CommandGroup(typer.Typer):
    """A group of such commands: those of a module, or with a name the subcommands of one command."""

    def __init__(self, **options: Any) -> None:
        defaults: dict[str, Any] = {"add_completion": False, "no_args_is_help": True, "rich_markup_mode": "markdown"}
        super().__init__(cls=PlainGroup, **(defaults | options))

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Return a decorator that adds a command, as typer's own method does."""
        return super().command(name, **{"cls": SingleValueCommand, **options})

    def subgroup(self, name: str) -> CommandGroup:
        """Add a group, whose help is the text that :mod:`confplane.cli.commands` has for it."""
        group = CommandGroup(name=name)
        self.add_typer(group)
        return group
