"""Gives the answers of both sides one shape, in which equal ones are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from confplane.domain.config_resources import ConfigResourceType
from tests.interop.differential.steps import Method, names_of

if TYPE_CHECKING:
    from tests.interop.differential.steps import Body, Step

_SOURCES: Final = (
    "UNKNOWN",
    "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
    "DYNAMIC_BROKER_LOGGER_CONFIG",
    "CLIENT_METRICS_CONFIG",
)
_TYPES: Final = (
    "UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD",
)  # fmt: skip
_FIELDS: Final = ("value", "readOnly", "isSensitive", "configSource", "configType", "synonyms")

Described = dict[Any, Any]


def parts(step: Step) -> list[dict[str, Any]]:
    """Return the parts of a request."""
    found: list[dict[str, Any]] = step.body[step.method.parts]
    return found


def their_codes(step: Step, answer: Body) -> list[int]:
    """Return Kafka's error code for each part of an alter. Of an entity that is there twice it gives one."""
    if step.method is Method.ALTER_QUOTAS:
        by_entity = {_key(names_of(entry["entity"])): entry["errorCode"] for entry in answer["entries"]}
        return [by_entity[_key(_wired(names_of(entry["entity"])))] for entry in parts(step)]
    by_name = {(item["resourceType"], item["resourceName"]): item["errorCode"] for item in answer["responses"]}
    return [by_name[item["resourceType"], item["resourceName"]] for item in parts(step)]


def our_codes(step: Step, answer: Body) -> list[int]:
    """Return Confplane's error code for each part of an alter: that of the request where it was refused whole."""
    results = answer.get("entries" if step.method is Method.ALTER_QUOTAS else "responses")
    if results is None:
        return [answer["kafkaErrorCode"]] * len(parts(step))
    return [item["errorCode"] for item in results]


def quotas(answer: Body) -> tuple[int, Described]:
    """Return the error code of a describe of quotas, and entity to quotas."""
    if answer.get("errorCode") is None:
        return answer["kafkaErrorCode"], {}
    found: Described = {}
    for entry in answer["entries"] or []:
        key = _key(names_of(entry["entity"]))
        assert key not in found, f"an entity is described twice: {key}"
        found[key] = {item["key"]: float(item["value"]) for item in entry["values"]}
    return answer["errorCode"], found


def configs(step: Step, answer: Body) -> list[tuple[int, Described]]:
    """Return, for each resource of a describe of configs, its error code and its configs by name."""
    if answer.get("results") is None:
        return [(answer["kafkaErrorCode"], {})] * len(parts(step))
    found = []
    for result in answer["results"]:
        listed = [_config(item) for item in result["configs"]]
        assert len(dict(listed)) == len(listed), f"a config is described twice: {listed}"
        found.append((result["errorCode"], dict(listed)))
    return found


def our_configs(step: Step, answer: Body) -> list[tuple[int, Described]]:
    """Return the same of Confplane's answer, which has one result for the mentions of a resource, with all their keys."""
    found = configs(step, answer)
    if answer.get("results") is None:
        return found
    named = [(ConfigResourceType[item["resourceType"]], item["resourceName"]) for item in answer["results"]]
    by_name = dict(zip(named, found, strict=True))
    described = []
    for item in parts(step):
        code, listed = by_name[ConfigResourceType(item["resourceType"]), item["resourceName"]]
        keys = item.get("configurationKeys")
        described.append((code, {key: each for key, each in listed.items() if not keys or key in keys}))
    return described


def _config(item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    shown = {field: item[field] for field in _FIELDS}
    shown["configSource"] = _named(_SOURCES, shown["configSource"])
    shown["configType"] = _named(_TYPES, shown["configType"])
    shown["synonyms"] = [(each["name"], each["value"], _named(_SOURCES, each["source"])) for each in item["synonyms"]]
    return item["name"], shown


def _named(names: tuple[str, ...], value: int | str) -> str:
    return names[value] if isinstance(value, int) else value


def _key(names: dict[str, str | None]) -> tuple[tuple[str, str | None], ...]:
    return tuple(sorted(names.items(), key=lambda item: item[0]))


def _wired(names: dict[str, str | None]) -> dict[str, str | None]:
    # A lone surrogate is a question mark once Java has written it.
    return {
        kind: name and "".join("?" if "\ud800" <= letter <= "\udfff" else letter for letter in name)
        for kind, name in names.items()
    }
