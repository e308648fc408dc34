"""Command lines of ``confplane configs``: the checks of options against each other, and their keys and values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import javaproperties

from confplane.cli.remote import profiles
from confplane.cli.remote.configs.options import REPLACED
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import InvalidRequestError
from confplane.domain.numbers import java_trim
from confplane.domain.quotas import SCRAM_KEYS, ClientQuotasFacet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from confplane.cli.remote.configs.options import ParsedOptions


_LOGGERS: Final = "broker-loggers"
TYPES: Final = {kind.plural: kind for kind in EntityType}
_SINGULARS: Final = {kind.value: kind.plural for kind in EntityType} | {"client": EntityType.CLIENT_ID.plural}
"""KIP-21's spellings of the types."""
_WITH_DEFAULT: Final = ("users", "clients", "brokers", "ips")
_PAIR: Final = {"users", "clients"}
_LONGEST_WAIT_MS: Final = 60_000
"""Maximum that the service accepts."""
_QUOTAS: Final = {"users", "clients", "ips"}

_NAMED: Final = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker-logger": _LOGGERS,
    "ip": "ips",
    "client-metrics": "client-metrics",
    "group": "groups",
}
"""Options that give a type and a name, in the order of the output of Kafka's tool."""
_DEFAULTS: Final = {
    "client-defaults": "clients",
    "user-defaults": "users",
    "broker-defaults": "brokers",
    "ip-defaults": "ips",
}


@dataclass(frozen=True, slots=True)
class Command:
    """A valid command line."""

    alter: bool
    types: tuple[str, ...]
    names: tuple[str, ...]
    """Names for the types, by position; '' is the default entity. A describe may have fewer names than types."""
    added: dict[str, str]
    deleted: tuple[str, ...]
    everything: bool
    """``--all``."""
    profile: str | None
    cluster: str | None
    wait_applied_ms: int | None = None
    """Maximum wait until an alter is applied to a Kafka 4 cluster; None for no wait."""
    break_glass: str | None = None
    """The reason to write past the rules of the policies; None for an alter within them."""

    @property
    def quotas(self) -> bool:
        """True for users, clients and ips."""
        return self.types[0] in _QUOTAS

    @property
    def components(self) -> list[tuple[EntityType, str | None]]:
        """Types and names of entities; a type without a name is absent, and None names the default entity."""
        return [(TYPES[each], name or None) for each, name in zip(self.types, self.names, strict=False)]

    @property
    def entity(self) -> Entity:
        """The only entity of an alter."""
        return Entity.from_components(self.components)


def read(parsed: ParsedOptions) -> Command:
    """Check options against each other and read their values.

    Raises:
        InvalidRequestError: The combination is not valid, or no entity can have the name.
    """
    _check_servers(parsed)
    if parsed.has("alter") == parsed.has("describe"):
        raise InvalidRequestError("Give exactly one action: --describe or --alter")
    if parsed.has("describe") and parsed.has("add-config", "add-config-file", "delete-config"):
        raise InvalidRequestError("--describe changes nothing. Use --alter with --add-config and --delete-config.")
    command = Command(
        alter=parsed.has("alter"),
        types=_types(parsed),
        names=_names(parsed),
        added=_added(parsed),
        deleted=_keys_of(parsed.values("delete-config")),
        everything=parsed.has("all"),
        profile=parsed.value("command-config") or parsed.value("profile"),
        cluster=parsed.value("cluster"),
        wait_applied_ms=_wait_applied(parsed),
        break_glass=_break_glass(parsed),
    )
    if command.alter:
        _check_alter(parsed, command)
    else:
        _check_describe(parsed, command)
    _check_names(command)
    return command


def types_of(words: Sequence[str]) -> list[EntityType]:
    """Return the types that the words of an unfinished line name."""
    named = [_NAMED.get(word[2:], _DEFAULTS.get(word[2:], "")) for word in words if word.startswith("--")]
    listed = [_SINGULARS.get(word, word) for option, word in pairwise(words) if option == "--entity-type"]
    return [TYPES[each] for each in [*listed, *named] if each in TYPES]


def _check_servers(parsed: ParsedOptions) -> None:
    for name in filter(parsed.has, REPLACED):
        try:
            profile = profiles.choose_profile(
                parsed.value("command-config") or parsed.value("profile"), parsed.value("cluster")
            )
        except profiles.ProfileError as error:
            place = str(error)
        else:
            place = f"Without it, the cluster {profile.cluster} of the service {profile.url} is used"
        raise InvalidRequestError(
            f"--{name} is not supported: configs are read and changed through a Confplane service, never on"
            " brokers or in"
            f" ZooKeeper. {place}. `--command-config NAME` names another profile, `--cluster NAME` another cluster."
        )


def _types(parsed: ParsedOptions) -> tuple[str, ...]:
    shorthands = [kind for name, kind in {**_NAMED, **_DEFAULTS}.items() if parsed.has(name)]
    if shorthands and parsed.has("entity-type", "entity-name", "entity-default"):
        raise InvalidRequestError(
            "--entity-type, --entity-name and --entity-default can't be combined with options such as --topic"
            " and --user"
        )
    types = (*(_SINGULARS.get(each, each) for each in parsed.values("entity-type")), *shorthands)
    if not types:
        raise InvalidRequestError(
            "Give an entity type: --entity-type TYPE, or an option such as --topic NAME or --user NAME"
        )
    for each in types:
        if each == _LOGGERS:
            raise InvalidRequestError(
                "Levels of loggers are kept by each broker while it runs, and not among the configs: use"
                " `kafka-configs.sh --bootstrap-server BROKER --broker-logger ID`"
            )
        if each not in TYPES:
            raise InvalidRequestError(f"--entity-type: {each!r} is not a valid type. Available: {', '.join(TYPES)}.")
    if len(types) != len(set(types)):
        raise InvalidRequestError(f"A type is given twice: {', '.join(types)}")
    if len(types) > 1 and set(types) != _PAIR:
        raise InvalidRequestError(f"Only users and clients go together, not {', '.join(types)}")
    return types


def _names(parsed: ParsedOptions) -> tuple[str, ...]:
    listed = [value for name, value in parsed.options if name in {"entity-name", "entity-default"}]
    named = [name for option in _NAMED if (name := parsed.value(option)) is not None]
    return (*listed, *named, *("" for name in _DEFAULTS if parsed.has(name)))


def _added(parsed: ParsedOptions) -> dict[str, str]:
    if parsed.has("add-config") and parsed.has("add-config-file"):
        raise InvalidRequestError("Give --add-config or --add-config-file, not both")
    text, path = parsed.value("add-config"), parsed.value("add-config-file")
    if path is not None:
        return pairs_of_file(path)
    return {} if text is None else pairs_of_text(text)


def _wait_applied(parsed: ParsedOptions) -> int | None:
    text = parsed.value("wait-applied")
    if text is None:
        return None
    if not parsed.has("alter"):
        raise InvalidRequestError("--wait-applied is only for --alter.")
    if not (text.isascii() and text.isdecimal() and int(text) <= _LONGEST_WAIT_MS):
        raise InvalidRequestError(f"--wait-applied is a number of milliseconds up to {_LONGEST_WAIT_MS}")
    return int(text)


def _break_glass(parsed: ParsedOptions) -> str | None:
    reason = parsed.value("break-glass")
    if reason is not None and not parsed.has("alter"):
        raise InvalidRequestError("--break-glass is only for --alter.")
    return reason


def _check_alter(parsed: ParsedOptions, command: Command) -> None:
    _check_names_given(parsed)
    if not parsed.has("add-config", "add-config-file", "delete-config"):
        raise InvalidRequestError("--alter needs --add-config, --add-config-file or --delete-config")
    if command.types[0] not in _WITH_DEFAULT and not any(command.names):
        raise InvalidRequestError(f"--alter of {command.types[0]} needs a name; they have no default entity")
    if len(command.names) != len(command.types):
        raise InvalidRequestError("--alter needs one name, --entity-name NAME or --entity-default, for each type")
    if scram := SCRAM_KEYS & {*command.added, *command.deleted}:
        raise InvalidRequestError(
            f"{', '.join(sorted(scram))}: credentials are not configs, and are neither shown nor changed here. Use"
            " `kafka-configs.sh --bootstrap-server BROKER --alter --user NAME`"
        )


def _check_names_given(parsed: ParsedOptions) -> None:
    """Refuse empty names, which an unset variable of a script leaves; Kafka's tool takes them as the default entity."""
    for name in _NAMED:
        if "" in parsed.values(name):
            default = f"{name}-defaults"
            advice = f"; --{default} names the default entity" if default in _DEFAULTS else ""
            raise InvalidRequestError(f"--{name} has an empty name{advice}")
    if "" in parsed.values("entity-name"):
        raise InvalidRequestError("--entity-name has an empty name; --entity-default names the default entity")


def _check_describe(parsed: ParsedOptions, command: Command) -> None:
    if len(command.names) > len(command.types):
        raise InvalidRequestError("There are more names than types")
    if parsed.has("entity-default") and command.types[0] not in _WITH_DEFAULT:
        raise InvalidRequestError(f"--entity-default: {command.types[0]} have no default entity")


def _check_names(command: Command) -> None:
    if not command.names:
        return
    entity = command.entity
    if command.types[0] == "ips":
        ClientQuotasFacet().check_entity(entity)


_OUTSIDE: Final = r"(?=[^\]]*(?:\[|$))"
"""Followed by an opening bracket or by no closing one: Kafka's test for a place outside brackets."""
_COMMA: Final = re.compile(f",{_OUTSIDE}")
_EQUALS: Final = re.compile(rf"\s*=\s*{_OUTSIDE}", re.ASCII)
_NO_KEY: Final = re.compile(r"[^a-zA-Z0-9._-]")
_BRACKETS: Final = re.compile(r"[\[\]]")
_USE_FILE: Final = "--add-config-file FILE takes every value as it is; FILE may be /dev/stdin."


def pairs_of_text(text: str) -> dict[str, str]:
    """Read ``k1=v1,k2=[v2,v3]``; only the outer brackets of a value are removed.

    Raises:
        InvalidRequestError: A part is not a key and a value, brackets in a value are ambiguous, a key is given twice or
        has an invalid character. The text shows neither: after a comma in a password without brackets, the rest of the
        password looks like a key.
    """
    parts = _COMMA.split(text)
    while text and parts and not parts[-1]:  # commas at the end separate nothing
        parts.pop()
    pairs = [_EQUALS.split(part) for part in parts]
    for number, pair in enumerate(pairs, 1):
        if len(pair) != 2:  # noqa: PLR2004 - a key and a value
            raise InvalidRequestError(
                f"--add-config: config {number} is not of the form key=value; a value with commas or equals signs needs"
                f" brackets: key=[a,b]. {_USE_FILE}"
            )
    return _checked(
        [(java_trim(key), _without_brackets(number, java_trim(value))) for number, (key, value) in enumerate(pairs, 1)],
        "--add-config",
    )


def _without_brackets(number: int, value: str) -> str:
    """Return a value without its outer pair of brackets.

    Kafka's tool removes all brackets. Here they remain inside a value, unless a comma or an equals sign belongs to the
    value only because of them.

    Raises:
        InvalidRequestError: It is not clear which brackets belong to the value.
    """
    if not _BRACKETS.search(value):
        return value
    if value[0] == "[" and value[-1] == "]" and _is_balanced(value[1:-1]):
        return java_trim(value[1:-1])
    if value[0] == "[" or "," in value or "=" in value:
        raise InvalidRequestError(
            f"--add-config: config {number} has brackets that may belong to its value or enclose it. {_USE_FILE}"
        )
    return value


def _is_balanced(text: str) -> bool:
    depth = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket == "[" else -1
        if depth < 0:
            return False
    return depth == 0


def pairs_of_file(path: str) -> dict[str, str]:
    """Read a properties file, in which brackets have no meaning.

    Raises:
        InvalidRequestError: The file can't be read, or a key is there twice or has an invalid character.
    """
    try:
        found = javaproperties.loads(Path(path).read_bytes(), object_pairs_hook=list)
    except OSError as error:
        raise InvalidRequestError(f"--add-config-file: {path} can't be read: {error.strerror}") from None
    except ValueError:
        raise InvalidRequestError(f"--add-config-file: {path} has a \\u without four hexadecimal digits") from None
    return _checked(found, f"--add-config-file: {path}")


def _keys_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Read ``k1,k2`` of each option; blanks around a key and empty keys do not count."""
    return tuple(java_trim(key) for text in texts for key in text.split(",") if key)


def _checked(pairs: Iterable[tuple[str, str]], where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, (key, value) in enumerate(pairs, 1):
        if (other := _NO_KEY.search(key)) is not None:
            raise InvalidRequestError(
                f"{where}: a key has the character {other[0]!r}; keys have letters, digits, '.', '_' and '-'"
            )
        if key in found:  # not named: it may be a part of a password
            raise InvalidRequestError(f"{where}: config {number} has the key of an earlier one")
        found[key] = value
    return found
