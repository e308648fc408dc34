"""``confplane export`` over the API: a selection of entities, read page by page and written in one of several forms."""

from __future__ import annotations

import json
import re
import shlex
import sys
import unicodedata
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, TextIO

import javaproperties

from confplane.cli.output import echo, escape
from confplane.cli.remote.selection import EntityReader
from confplane.cli.remote.session import DONE, FAILED
from confplane.domain.facets import FacetName
from confplane.domain.quotas import MAX_LONG
from confplane.files import open_output
from confplane.manifest_text import ENTITIES, NO_ENTITIES, entity_text, manifest_head
from confplane.strict_yaml import dump_item

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from confplane.cli.remote.selection import EntitySelection
    from confplane.client import AsyncConfplane

    Form = Callable[[EntityReader], AsyncIterator[str]]
    """Writes a source piece by piece."""
    from collections.abc import AsyncIterator, Iterator

    from confplane.cli.remote.selection import ListedEntity, Value


def form_of(name: str, command: str | None) -> Form:
    """Return a form by its name; ``command`` replaces the words of Kafka's tool."""
    forms: dict[str, Form] = {
        "yaml": _render_yaml,
        "manifest": _render_manifest,
        "kafka-configs": partial(_render_kafka_configs, command=command or COMMAND),
        "terraform": _render_terraform,
    }
    return forms[name]


async def export(client: AsyncConfplane, form: Form, selection: EntitySelection, output: Path | None) -> int:
    """Write the selected entities of a cluster, and return the exit code.

    Raises:
        InvalidRequestError: No entity can be of the selected types.
        ClientError: The service refused the request, or did not answer.
    """
    reader = EntityReader(client, selection)
    try:
        with _open_destination(output) as stream:
            async for text in form(reader):
                stream.write(text)
            for path in reader.unreadable:
                stream.write(reader.leave_out(f"the znode {json.dumps(path)}: the service can't read it"))
    except BrokenPipeError:
        raise  # the reader has closed the pipe
    except OSError as error:
        echo(f"Not exported: {output or 'standard output'} can't be written: {error.strerror}", err=True)
        return FAILED
    return _ended(reader, output)


def _ended(reader: EntityReader, output: Path | None) -> int:
    where = "" if output is None else f" to {output}"
    secrets = f"; secrets that it leaves to you: {reader.secrets}" if reader.secrets else ""
    echo(f"Exported {reader.noun}{where}: {reader.count}{secrets}", err=True)
    for reason in reader.reasons:
        echo(f"Left out: {reason}", err=True)
    if further := reader.left_out - len(reader.reasons):
        echo(f"Left out besides, see the comments: {further}", err=True)
    return FAILED if reader.left_out else DONE


@contextmanager
def _open_destination(path: Path | None) -> Iterator[TextIO]:
    """Open a file, or standard output for None; after a failure, an existing file is unchanged.

    Raises:
        OSError: The file can't be written.
    """
    if path is None:
        yield sys.stdout
        sys.stdout.flush()  # a closed pipe is noticed here at the latest
        return
    with open_output(path) as stream:
        yield stream


async def _render_yaml(reader: EntityReader) -> AsyncIterator[str]:
    """Write a document whose list has an item for each entity."""
    yield f"# Configs of the cluster {reader.client.cluster}, for `confplane load`. A secret is null.\n"
    empty = True
    async for each in reader.read(*FacetName):
        empty = False
        item = {"id": each.id} | {facet.value: values for facet, values in each.facets.items()}
        yield dump_item(item)
    if empty:
        yield "[]\n"


async def _render_manifest(reader: EntityReader) -> AsyncIterator[str]:
    """Write a manifest."""
    yield manifest_head(reader.client.cluster, reader.selection.owner)
    empty = True
    async for each in reader.read(*FacetName):
        text = entity_text(each.id, each.facets)
        yield f"{ENTITIES}{text}" if empty else text
        empty = False
    if empty:
        yield NO_ENTITIES
    yield reader.labels.text


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


async def _render_kafka_configs(reader: EntityReader, command: str) -> AsyncIterator[str]:
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
        named = "--entity-default" if name is None else f"--entity-name {_quoted_word(name)}"
        words.append(f"--entity-type {kind.plural} {named}")
    return " ".join(words)


def _quoted_word(text: str) -> str:
    """Return a word of a POSIX shell. Control characters are written by printf, so that a script can be looked at."""
    if escape(text) == text:
        return shlex.quote(text)
    parts = []
    for is_plain, each in groupby(text, lambda character: escape(character) == character):
        part = "".join(each)
        octal = "".join(f"\\{byte:03o}" for byte in part.encode())
        parts.append(shlex.quote(part) if is_plain else f"\"$(printf '{octal}')\"")
    return "".join(parts)


def _added(values: dict[str, str]) -> str:
    if all(_PLAIN_VALUE.fullmatch(value) for value in values.values()):
        return "--add-config " + ",".join(f"{key}={value}" for key, value in values.items())
    lines = [javaproperties.join_key_value(key, value) for key, value in values.items()]
    return "\n".join([f"--add-config-file /dev/stdin <<'{_END}'", *lines, _END])


_TERRAFORM_HEAD: Final = """\
# Configs of the cluster {cluster}, for Terraform and OpenTofu from 1.7 on. A secret is null, and stays as it is.
# The module is deploy/terraform/confplane of Confplane. The token is in the variable REST_API_BEARER.

terraform {{
  required_providers {{
    restapi = {{
      source  = "Mastercard/restapi"
      version = ">= 3.0.0"
    }}
  }}
}}

variable "url" {{
  description = "The URL of Confplane, without /v1."
  type        = string
}}

provider "restapi" {{
  uri                  = var.url
  write_returns_object = true
}}

module "confplane" {{
  source         = "../confplane"
  cluster        = "{cluster}"
  client_quotas  = local.client_quotas
  client_configs = local.client_configs
  configs        = local.configs
}}
"""
_IMPORT: Final = """
import {{
  for_each = local.{name}
  to       = module.confplane.restapi_object.{name}[each.key]
  id       = "/v1/clusters/{cluster}/{facet}/${{each.key}}"
}}

locals {{
  {name} = {{
"""
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ONE_UNIT: Final = 0xFFFF
"""The greatest code point that four digits can name."""


async def _render_terraform(reader: EntityReader) -> AsyncIterator[str]:
    """Write a configuration whose first apply imports each facet of each entity, and changes no content."""
    reader.noun = "resources"
    cluster = reader.client.cluster
    yield _TERRAFORM_HEAD.format(cluster=cluster)
    for facet in FacetName:
        yield _IMPORT.format(name=facet.value.replace("-", "_"), facet=facet.value, cluster=cluster)
        async for each in reader.read(facet):
            yield "".join(_terraform_lines(reader, each, each.facets[facet]))
        yield "  }\n}\n"


def _terraform_lines(reader: EntityReader, each: ListedEntity, values: dict[str, Value]) -> Iterator[str]:
    if not unicodedata.is_normalized("NFC", json.dumps(values, ensure_ascii=False)):
        # With only a part of an entity, the plan would remove the rest.
        yield reader.leave_out(f"{each.id}: Terraform would change a text that is not in Unicode's form NFC")
    else:
        pairs = ", ".join(f"{quoted(key)} = {_literal(value)}" for key, value in values.items())
        yield f"    {quoted(each.id)} = {{ {pairs} }}\n"


def quoted(text: str) -> str:
    """Return a quoted string of HCL without templates."""
    escaped = "".join(_ESCAPES.get(each) or (each if each.isprintable() else _numbered(ord(each))) for each in text)
    return f'"{escaped.replace("${", "$${").replace("%{", "%%{")}"'


def _numbered(point: int) -> str:
    return f"\\u{point:04x}" if point <= _ONE_UNIT else f"\\U{point:08x}"


def _literal(value: Value) -> str:
    return quoted(value) if isinstance(value, str) else json.dumps(value)
