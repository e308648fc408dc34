"""Options of ``kafka-configs.sh``, parsed like its parser (joptsimple) does, and their help."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final, NamedTuple

from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Option(NamedTuple):
    """One option."""

    metavar: str | None
    """The value in the help; None for an option without a value."""
    help: str


class OptionGroup(NamedTuple):
    """Options under one heading of the help."""

    title: str
    options: dict[str, Option]


GROUPS: Final = (
    OptionGroup(
        "Actions, exactly one",
        {
            "describe": Option(None, "List configs. KIP-21: --describe-config."),
            "alter": Option(None, "Change configs. KIP-21: --alter-config."),
        },
    ),
    OptionGroup(
        "Entities",
        {
            "entity-type": Option(
                "TYPE",
                "topics, clients, users, brokers, ips, groups or client-metrics; users and clients go together. KIP-21:"
                " in the singular.",
            ),
            "entity-name": Option("NAME", "The name for the type; absent from a describe: all of the type."),
            "entity-default": Option(None, "The default entity of the type: users, clients, brokers, ips."),
            "topic": Option("NAME", "A topic."),
            "client": Option("ID", "A client-id."),
            "user": Option("NAME", "A user principal."),
            "broker": Option("ID", "A broker."),
            "broker-logger": Option("ID", "Not served: see docs/kafka-configs.md."),
            "ip": Option("IP", "An IPv4 address."),
            "client-metrics": Option("NAME", "A subscription to metrics of clients."),
            "group": Option("ID", "A group."),
            "client-defaults": Option(None, "The default of all client-ids."),
            "user-defaults": Option(None, "The default of all users."),
            "broker-defaults": Option(None, "The default of all brokers."),
            "ip-defaults": Option(None, "The default of all ips."),
        },
    ),
    OptionGroup(
        "Configs",
        {
            "add-config": Option("K=V,...", "Configs to set; k=[a,b] for a value with commas. KIP-21: --added-config."),
            "add-config-file": Option("FILE", "A properties file of configs to set."),
            "delete-config": Option("K,...", "Configs to remove. KIP-21: --deleted-config."),
            "all": Option(None, "Describe all configs of topics, brokers and groups, static ones and defaults too."),
        },
    ),
    OptionGroup(
        "The service",
        {
            "command-config": Option("PROFILE", "The profile of the service; the current profile if absent."),
            "profile": Option("PROFILE", "The same as --command-config."),
            "cluster": Option("NAME", "The cluster; the cluster of the profile if absent."),
            "wait-applied": Option(
                "MS", "For --alter: the maximum wait until a Kafka 4 cluster has applied the change."
            ),
            "break-glass": Option("REASON", "For --alter, in an emergency: write past the rules of the policies."),
            "force": Option(None, "Accepted as by Kafka's tool; it has no effect."),
            "help": Option(None, "Show this text."),
            "version": Option(None, "Show the version."),
        },
    ),
)
REPLACED: Final = ("bootstrap-server", "bootstrap-controller", "broker-list", "zookeeper", "zk-tls-config-file")
"""Options that name servers; the profile replaces them."""

_SPELLINGS: Final = {
    "alter-config": "alter",
    "describe-config": "describe",
    "added-config": "add-config",
    "deleted-config": "delete-config",
}
"""The names of KIP-21."""
_METAVARS: Final = {name: option.metavar for group in GROUPS for name, option in group.options.items()} | dict.fromkeys(
    REPLACED, "ADDRESS"
)
NAMES: Final = (*_METAVARS, *_SPELLINGS)


class ParsedOptions:
    """The parsed options of a command line, in their order."""

    def __init__(self, options: Sequence[tuple[str, str]]) -> None:
        self.options = options
        """Names, and values or ''."""

    def has(self, *names: str) -> bool:
        """Return True if any of these options is given."""
        return any(name in names for name, _ in self.options)

    def values(self, name: str) -> list[str]:
        """Return the values of an option that may be repeated."""
        return [value for each, value in self.options if each == name]

    def value(self, name: str) -> str | None:
        """Return the value of an option that may be given once; None if it is absent.

        Raises:
            InvalidRequestError: It is given more than once.
        """
        values = self.values(name)
        if len(values) > 1:
            raise InvalidRequestError(f"--{name} is given {len(values)} times; it takes one value")
        return values[0] if values else None


def split(words: Sequence[str]) -> ParsedOptions:
    """Split a command line into options.

    Raises:
        InvalidRequestError: An option is unknown or lacks its value, or a word belongs to no option.
    """
    found: list[tuple[str, str]] = []
    left = iter(words)
    for word in left:
        if not word.startswith("-"):
            # Kafka's tool ignores such words, and so a config after a blank: `--add-config a=1, b=2`. The word itself
            # may be a secret.
            place = f" after --{found[-1][0]}" if found else ""
            raise InvalidRequestError(
                f"A word{place} does not belong to an option. Put a value with blanks into quotes."
            )
        name, attached, value = word.removeprefix("-").removeprefix("-").partition("=")
        name = _SPELLINGS.get(name, name)
        if name not in _METAVARS:
            raise InvalidRequestError(
                f"{word.partition('=')[0]} is not a valid option. `confplane configs --help` lists all."
            )
        takes_value = _METAVARS[name] is not None
        behind = value if attached else next(left, None) if takes_value else ""
        if behind is None:
            raise InvalidRequestError(f"--{name} needs a value")
        found.append((name, behind))
    return ParsedOptions(found)


_WIDTH: Final = 110
_COLUMN: Final = 26

_HEAD: Final = """\
Usage: confplane configs (--describe | --alter) ENTITIES [OPTIONS]

Describe and change configs with the options of kafka-configs.sh, through a Confplane service. Quotas and client
configs of one command are one change. docs/kafka-configs.md lists what differs from Kafka's tool.
"""
_TAIL: Final = """\
Examples:
  confplane configs --describe --user alice
  confplane configs --alter --topic orders --add-config 'cleanup.policy=[compact,delete],retention.ms=86400000'
  confplane configs --alter --entity-type users --entity-name alice --delete-config producer_byte_rate

Exit codes: 0 done; 1 refused, or the service did not answer, or an entity can't be read; 3 the answer to a change was
lost, and it may be done or not.
"""


def usage() -> str:
    """Return the help."""
    parts = [_HEAD]
    for group in GROUPS:
        parts.append(f"{group.title}:")
        for name, option in group.options.items():
            spelled = f"--{name}" if option.metavar is None else f"--{name} {option.metavar}"
            explained = textwrap.wrap(option.help, _WIDTH - _COLUMN - 2)
            first = explained.pop(0) if len(spelled) < _COLUMN else ""
            parts.append(f"  {spelled:{_COLUMN}}{first}".rstrip())
            parts += [f"  {'':{_COLUMN}}{line}" for line in explained]
        parts.append("")
    return "\n".join([*parts, _TAIL])
