"""Commands that refuse an option that is given twice, instead of keeping its last value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperOption

if TYPE_CHECKING:
    from collections.abc import Callable


class SingleValueCommand(TyperCommand):
    """A command in which only options that take a list may be repeated."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command; ``ctx`` is click's context, from typer's own copy of click.

        Raises:
            typer.BadParameter: An option with a value is given twice.
        """
        if args and not ctx.resilient_parsing:
            given = self.make_parser(ctx).parse_args(args=list(args))[2]
            for param in self.params:
                if not isinstance(param, TyperOption) or param.multiple or (param.is_flag and not param.secondary_opts):
                    continue
                if (times := sum(each is param for each in given)) > 1:
                    raise typer.BadParameter(f"It is given {times} times, but takes one value.", ctx=ctx, param=param)
        rest: list[str] = super().parse_args(ctx, args)
        return rest


class CommandGroup(typer.Typer):
    """A group of such commands."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Return a decorator that adds a command, as typer's own method does."""
        return super().command(name, cls=SingleValueCommand, **options)
