r"""The form ``kafka-configs``: a shell script with a command of Kafka's ``kafka-configs.sh`` for each entity.

Values of letters, digits and a few marks are passed in ``--add-config``. For other values the tool has no quoting: it
splits at commas, and drops brackets and outer blanks. An entity with such a value gets a here-document for the option
``--add-config-file``, in Java's ``.properties`` format: ASCII lines in which a line break is ``\n``.

Source: core/src/main/scala/kafka/admin/ConfigCommand.scala (``parseConfigsToBeAdded``), as of Kafka 3.9.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, Final

import javaproperties

from confplane.domain.facets import FacetName
from confplane.domain.quotas import MAX_LONG

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from confplane.cli.remote.selection import EntityReader, ListedEntity, Value

COMMAND: Final = 'kafka-configs.sh --bootstrap-server "$BOOTSTRAP"'
"""The words of each command before its options."""
_HEAD: Final = """\
#!/bin/sh
# Configs of the cluster {cluster}, as commands of Kafka's own tool. Topics must exist, and brokers must run.
# BOOTSTRAP is the address of a broker: BOOTSTRAP=localhost:9092 sh FILE
set -eu
LC_ALL=C.UTF-8 # Java reads names by it
export LC_ALL
"""
_PLAIN_VALUE: Final = re.compile(r"[A-Za-z0-9._:/*+-]+")
_KEY: Final = re.compile(r"[A-Za-z0-9._-]+")
"""The keys that the tool accepts."""
_END: Final = "END"
"""The end of a here-document. All of its other lines have an equals sign."""


async def render(reader: EntityReader, command: str) -> AsyncIterator[str]:
    """Yield the lines of a script.

    Args:
        reader: The entities.
        command: The words of each command before its options.
    """
    yield _HEAD.format(cluster=reader.client.cluster)
    async for each in reader.read(*FacetName):
        yield "".join(_lines(reader, each, command))


def _lines(reader: EntityReader, each: ListedEntity, command: str) -> Iterator[str]:
    kept: dict[str, str] = {}
    for facet, values in each.facets.items():
        for key, value in values.items():
            shown = f"{each.id}, {key if _KEY.fullmatch(key) else json.dumps(key)}"
            if value is None:
                yield f"# A secret, to be set by hand: {shown}\n"
            elif (reason := _reason(facet, key, value)) is not None:
                yield reader.leave_out(f"{shown}: {reason}")
            else:
                kept[key] = value if isinstance(value, str) else json.dumps(value)
    if kept:
        yield f"{command} --alter {_named(each)} {_added(kept)}\n"


def _reason(facet: FacetName, key: str, value: Value) -> str | None:
    """Return the reason why Kafka's tool can't set a value, or None if it can."""
    if facet is FacetName.CLIENT_CONFIGS:
        return "Kafka's tool has no client configs"
    if not _KEY.fullmatch(key):
        return "Kafka's tool takes letters, digits, '.', '_' and '-' in a key"
    if isinstance(value, int) and min(int(float(value)), MAX_LONG) != value:
        return f"Kafka's tool rounds {value}"
    return None


def _named(each: ListedEntity) -> str:
    words = []
    for kind, name in each.entity.components:
        named = "--entity-default" if name is None else f"--entity-name {shlex.quote(name)}"
        words.append(f"--entity-type {kind.plural} {named}")
    return " ".join(words)


def _added(values: dict[str, str]) -> str:
    if all(_PLAIN_VALUE.fullmatch(value) for value in values.values()):
        return "--add-config " + ",".join(f"{key}={value}" for key, value in values.items())
    lines = [javaproperties.join_key_value(key, value) for key, value in values.items()]
    return "\n".join([f"--add-config-file /dev/stdin <<'{_END}'", *lines, _END])
