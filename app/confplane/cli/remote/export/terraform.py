"""The form ``terraform``: a configuration for the module of ``deploy/terraform`` that imports its resources.

Source: https://github.com/hashicorp/hcl/blob/main/hclsyntax/spec.md (templates, quoted strings).
"""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Final

from confplane.domain.facets import FacetName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from confplane.cli.remote.selection import EntityReader, ListedEntity, Value

_HEAD: Final = """\
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


async def render(reader: EntityReader) -> AsyncIterator[str]:
    """Write a configuration whose first apply imports each facet of each entity, and changes no content."""
    reader.noun = "resources"
    cluster = reader.client.cluster
    yield _HEAD.format(cluster=cluster)
    for facet in FacetName:
        yield _IMPORT.format(name=facet.value.replace("-", "_"), facet=facet.value, cluster=cluster)
        async for each in reader.read(facet):
            yield "".join(_lines(reader, each, each.facets[facet]))
        yield "  }\n}\n"


def _lines(reader: EntityReader, each: ListedEntity, values: dict[str, Value]) -> Iterator[str]:
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
