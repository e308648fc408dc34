"""The commands that change one entity over the API: ``set`` and ``delete``."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from confplane.cli.command_group import CommandGroup
from confplane.cli.output import echo, is_json, print_changes, print_json
from confplane.cli.remote import completion
from confplane.cli.remote.changes import ChangeOptions, EntityUpdate, differences, refuse_unset, report_one
from confplane.cli.remote.entities import entity_of, keys_of, read_entity_values
from confplane.cli.remote.options import (
    WRITE_CODES,
    ApplyAt,
    BreakGlass,
    Draft,
    Duration,
    EntityName,
    ExpiresAt,
    Propose,
    Reason,
    Ticket,
    ValidateOnly,
    WaitApplied,
    proposal_of,
    proposed,
    seconds_of,
    served,
)
from confplane.cli.remote.session import DONE
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confplane.client import AsyncConfplane


commands = CommandGroup()

_QuotasEtag = Annotated[
    str | None,
    typer.Option(metavar="ETAG", help="Change only if the quotas still have this ETag from `confplane get --json`."),
]
_ConfigsEtag = Annotated[
    str | None,
    typer.Option(metavar="ETAG", help="Change only if the configs still have this ETag from `confplane get --json`."),
]


@commands.command(
    "set",
    epilog="Examples:\n\n"
    "    confplane set user=alice producer_byte_rate=1048576 acks=all --reason 'more load'\n\n"
    "    confplane set topic=orders retention.ms=86400000 --validate-only\n\n"
    "    confplane set topic=orders retention.ms=3600000 --for 6h\n\n"
    "    confplane set topic=orders retention.ms=86400000 --propose --reason 'keep a day'\n\n"
    "    confplane set broker=0 listener.name.external.ssl.keystore.password\n\n"
    f"{WRITE_CODES}",
)
@served()
async def put(
    client: AsyncConfplane,
    entity: EntityName,
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE",
            help="Keys and values. KEY=@FILE is the file's text, KEY=@- that of standard input; for KEY alone the value"
            " is prompted for and not shown.",
            autocompletion=completion.keys_to_set,
        ),
    ],
    *,
    validate_only: ValidateOnly = False,
    reason: Reason = None,
    ticket: Ticket = None,
    duration: Duration = None,
    break_glass: BreakGlass = None,
    propose: Propose = False,
    draft: Draft = False,
    apply_at: ApplyAt = None,
    expires_at: ExpiresAt = None,
    quotas_etag: _QuotasEtag = None,
    configs_etag: _ConfigsEtag = None,
    wait_applied: WaitApplied = None,
) -> int:
    """Set keys of an entity, in one change; other keys stay as they are.

    Keys of quotas set quotas, and all other keys set configs. The values before and after are shown.
    """
    terms = (validate_only, reason, ticket, quotas_etag, configs_etag, wait_applied, seconds_of(duration), break_glass)
    options, change = ChangeOptions(*terms), EntityUpdate.of(entity_of(entity), values_of(values))
    proposal = proposal_of(apply_at, expires_at, propose=propose, draft=draft)
    if propose:
        return await _propose(client, change, options, proposal)
    on_line = {key for key, equals, text in (word.partition("=") for word in values) if equals and text[:1] != "@"}
    result = await change.send(client, options)
    if bared := sorted(each["key"] for each in differences(result) if each.get("secret") and each["key"] in on_line):
        echo(
            f"Warning: {', '.join(bared)} was given on the command line, where every user of the machine can read it."
            " Give a secret as KEY=@FILE, or as KEY alone for a prompt.",
            err=True,
        )
    _show(change, result, options)
    return report_one(result)


@commands.command(
    epilog="Examples:\n\n"
    "    confplane delete user=alice producer_byte_rate --ticket OPS-12\n\n"
    "    confplane delete topic=orders --all\n\n"
    f"{WRITE_CODES}"
)
@served()
async def delete(
    client: AsyncConfplane,
    entity: EntityName,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY", help="The keys to remove.", autocompletion=completion.keys_that_are_set),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Remove all keys of the entity.")] = False,
    validate_only: ValidateOnly = False,
    reason: Reason = None,
    ticket: Ticket = None,
    duration: Duration = None,
    break_glass: BreakGlass = None,
    propose: Propose = False,
    draft: Draft = False,
    apply_at: ApplyAt = None,
    expires_at: ExpiresAt = None,
    quotas_etag: _QuotasEtag = None,
    configs_etag: _ConfigsEtag = None,
    wait_applied: WaitApplied = None,
) -> int:
    """Remove keys of an entity, in one change. A key that is not set is refused.

    `--all` removes the keys that the command read first. If they change in the meantime, nothing is removed.
    """
    terms = (validate_only, reason, ticket, quotas_etag, configs_etag, wait_applied, seconds_of(duration), break_glass)
    options, named = ChangeOptions(*terms), entity_of(entity)
    proposal = proposal_of(apply_at, expires_at, propose=propose, draft=draft)
    if bool(keys) == everything:
        raise InvalidRequestError("Give the keys to delete, or --all for all keys of the entity.")
    found = await read_entity_values(client, named)
    present = [key for facet, answer in found.items() for key in keys_of(facet, answer)]
    refuse_unset(keys or (), present)
    if everything:  # those of this read: the change fails if another key is set after it
        if not present:
            raise InvalidRequestError(f"Nothing was changed. Nothing is set on {named.id}.")
        etags = {facet: answer.etag for facet, answer in found.items()}
        configs = etags.get(FacetName.CLIENT_CONFIGS, etags.get(FacetName.CONFIGS))
        options = replace(
            options,
            quotas_etag=options.quotas_etag or etags.get(FacetName.CLIENT_QUOTAS),
            configs_etag=options.configs_etag or configs,
        )
    change = EntityUpdate.of(named, dict.fromkeys(keys or present))
    if propose:
        return await _propose(client, change, options, proposal)
    result = await change.send(client, options)
    _show(change, result, options)
    return report_one(result)


async def _propose(
    client: AsyncConfplane, change: EntityUpdate, options: ChangeOptions, proposal: Mapping[str, Any]
) -> int:
    """Propose a change, and print the request.

    Raises:
        InvalidRequestError: An option is given that only a direct change has.
    """
    if options.quotas_etag or options.configs_etag or options.wait_applied_ms is not None or options.expires_in_s:
        raise InvalidRequestError(
            "--for, --wait-applied and ETags are options of direct changes, and not of --propose."
        )
    found = await change.propose(client, options, proposal)
    if is_json():
        print_json(found)
    else:
        print_changes(each for part in found["changes"] for each in part["diff"])
    said = "Valid; nothing was written"
    if not options.validate_only:
        said = proposed(found, change.entity.id)
    echo(said, err=True)
    return DONE


def _show(change: EntityUpdate, result: Mapping[str, Any], options: ChangeOptions) -> None:
    """Print the result, and on standard error a description of it."""
    changes = differences(result)
    if is_json():
        print_json(result)
    elif changes:
        print_changes(changes)
    if not changes:
        said = f"Nothing to change: {change.entity.id} already has these values"
    elif options.validate_only:
        said = "Valid; nothing was written"
    else:
        said = f"Changed {change.entity.id}: revision {result['revision']}, change {result['changeId']}"
        if options.expires_in_s is not None:
            said += ". Its end is listed by `confplane schedules list`"
    echo(said, err=True)


_KEY: Final = re.compile(r"[a-zA-Z0-9._-]+")
_STANDARD_INPUT: Final = "-"


def values_of(words: Sequence[str]) -> dict[str, str]:
    """Return the values of keys.

    ``KEY=@FILE`` is the file's text without the end of its last line, and ``KEY=@-`` that of standard input.
    ``KEY=@@TEXT`` is the text ``@TEXT``. For ``KEY`` alone, the command prompts for the value without showing it.
    Without a terminal, the value is a line of standard input.

    Raises:
        InvalidRequestError: A word has no key, a key or standard input is given twice, or a file can't be read. The
            text shows no value.
    """
    found: dict[str, str] = {}
    from_input = None
    for number, word in enumerate(words, 1):
        key, equals, text = word.partition("=")
        if not _KEY.fullmatch(key):
            raise InvalidRequestError(f"Argument {number} after the entity is not of the form KEY=VALUE")
        if key in found:
            raise InvalidRequestError(f"{key} is given twice")
        if text == f"@{_STANDARD_INPUT}":
            if from_input is not None:
                raise InvalidRequestError(
                    f"{from_input} and {key} are both to come from standard input; use KEY=@FILE for one of them"
                )
            from_input = key
        found[key] = _value(key, text) if equals else _asked(key, number)
    return found


def _value(key: str, text: str) -> str:
    if not text.startswith("@"):
        return text
    source = text[1:]
    if source.startswith("@"):
        return source
    try:
        content = sys.stdin.read() if source == _STANDARD_INPUT else Path(source).read_text("utf-8")
    except OSError as error:
        raise InvalidRequestError(f"{key}: the file {source} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidRequestError(f"{key}: the file {source} is not text") from None
    return content.removesuffix("\n").removesuffix("\r")


def _asked(key: str, number: int) -> str:
    """Prompt for a value. A word that is not a key may be a misplaced value, so it is shown only on the terminal."""
    if sys.stdin.isatty():
        text: str = typer.prompt(key, hide_input=True, default="", show_default=False, err=True)
    else:
        text = sys.stdin.readline().removesuffix("\n").removesuffix("\r")
    if not text:
        raise InvalidRequestError(
            f"Argument {number} after the entity is not KEY=VALUE. Write KEY= for an empty value."
        )
    return text
