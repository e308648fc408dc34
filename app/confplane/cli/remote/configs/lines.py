"""Lines that ``confplane configs`` prints on standard output: exactly those of Kafka's tool and of KIP-649."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confplane.domain.numbers import java_double

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from confplane.cli.remote.configs.arguments import Command

_KINDS: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_FEW: Final = ("consumer_byte_rate", "controller_mutation_rate", "request_percentage", "producer_byte_rate")
"""The order of up to three quotas in the tool's lines: that of a Java hash map of four buckets, filled by a broker."""
_ALL: Final = ("producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate", "request_percentage")
"""The order of four: that of eight buckets."""


def altered(command: Command) -> str:
    """Return the line of a change; of a user and a client-id, it names the first."""
    kind, name = command.types[0], command.names[0]
    if name:
        return f"Completed updating config for {kind[:-1]} {name}."
    return f"Completed updating default config for {kind} in the cluster."


def quotas(entry: Mapping[str, Any]) -> str:
    """Return the line of an entity's quotas; ``entry`` is from a describe's response, as in the next two functions."""
    values = {each["key"]: java_double(float(each["value"])) for each in entry["values"]}
    ordered = {key: values[key] for key in (*(_ALL if len(values) == len(_ALL) else _FEW), *values) if key in values}
    return f"Quota configs for {_entity(entry)} are {_joined(ordered)}"


def client_configs(entry: Mapping[str, Any]) -> str:
    """Return the line of an entity's client configs."""
    return (
        f"Dynamic configs for {_entity(entry)} are {_joined({each['key']: each['value'] for each in entry['values']})}"
    )


def supported(entry: Mapping[str, Any]) -> Iterable[str]:
    """Return a line for each software that registered the configs that it supports."""
    for each in entry["entityCompatibility"]:
        software = each["clientInformation"]
        yield (
            f"Supported dynamic configs for {_entity(entry)} are {', '.join(each['supportedConfigs'])}"
            f" ({software['softwareName']} {software['softwareVersion']})"
        )


def heading(kind: str, name: str, *, everything: bool) -> str:
    """Return the line above the configs of a topic, broker, group or subscription."""
    if not name:
        return f"Default configs for {kind} in the cluster are:"
    return f"{'All' if everything else 'Dynamic'} configs for {kind[:-1]} {name} are:"


def config(entry: Mapping[str, Any]) -> str:
    """Return the line of one config; secrets and absent values are ``null``."""
    synonyms = ", ".join(f"{each['source']}:{each['name']}={_text(each['value'])}" for each in entry["synonyms"])
    sensitive = str(entry["isSensitive"]).lower()
    return f"  {entry['name']}={_text(entry['value'])} sensitive={sensitive} synonyms={{{synonyms}}}"


def _entity(entry: Mapping[str, Any]) -> str:
    components: Sequence[Mapping[str, Any]] = entry["entity"]
    named = [(_KINDS[each["entityType"]], each["entityName"]) for each in components]
    return ", ".join(f"the default {kind}" if name is None else f"{kind} '{name}'" for kind, name in named)


def _joined(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _text(value: str | None) -> str:
    return "null" if value is None else value
