"""One command line of ``confplane configs``: its requests and its output."""

from __future__ import annotations

from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, cast

import typer

import confplane
from confplane.cli.command_group import CommandGroup
from confplane.cli.output import echo
from confplane.cli.remote import session
from confplane.cli.remote.changes import ChangeOptions, EntityUpdate, refuse_unset, report_one
from confplane.cli.remote.configs import arguments, options
from confplane.cli.remote.configs.arguments import TYPES
from confplane.cli.remote.entities import gather
from confplane.cli.remote.session import DONE, FAILED
from confplane.domain.client_configs import SUPPORTED_CONFIGS
from confplane.domain.config_resources import RESOURCE_ENTITY_TYPES
from confplane.domain.entities import Entity
from confplane.domain.errors import InvalidRequestError
from confplane.domain.facets import FacetName
from confplane.domain.numbers import java_double

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence

    from confplane.cli.remote.configs.arguments import Command
    from confplane.client import AsyncConfplane
    from confplane.client.types import ConfigResource


commands = CommandGroup()


@commands.command(
    # The command parses all words itself, because Kafka's tool parses them by other rules than typer.
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
def configs(context: typer.Context) -> None:
    """Describe and change configs with the options of kafka-configs.sh."""
    raise typer.Exit(run(context.args))


def run(words: Sequence[str]) -> int:
    """Run a command line on its own connection, and return the exit code."""
    return code_of(words, lambda command: session.run_with_client(command.profile, command.cluster, work_of(command)))


def code_of(words: Sequence[str], carried_out: Callable[[Command], int]) -> int:
    """Read and execute a command line, and return the exit code: that of Kafka's tool, 0 or 1, or 3.

    Help and version are printed here. Errors are printed on standard error.
    """

    def work() -> int:
        given = options.split(words)
        if given.has("help"):
            echo(options.usage(), nl=False)
        elif given.has("version"):
            echo(f"confplane {confplane.__version__}")
        elif not words:
            echo(options.usage(), nl=False, err=True)
            return session.FAILED
        else:
            return carried_out(arguments.read(given))
        return session.DONE

    code = session.code_of(work)
    return session.FAILED if code == session.INVALID else code


def work_of(command: Command) -> Callable[[AsyncConfplane], Coroutine[Any, Any, int]]:
    """Return the function that executes a command with a client.

    Raises:
        InvalidRequestError: The keys or values of a change are not valid.
    """
    return _altering(command) if command.alter else partial(_describe, command=command)


_RESOURCES: Final = 100
"""Resources of one request, because the response has all configs of each."""
_PAGE: Final = 1000
_RESOURCE_TYPES: Final = {kind.plural: code.name for code, kind in RESOURCE_ENTITY_TYPES.items()}
_DEFAULT_SOURCE: Final = "DYNAMIC_DEFAULT_BROKER_CONFIG"


async def _describe(client: AsyncConfplane, command: Command) -> int:
    """Print the result of a describe, and return the exit code: 1 if a part can't be read."""
    if command.quotas:
        return await _describe_clients(client, command)
    return await _describe_resources(client, command)


# ---------------------------------------------------------------- users, clients, ips


async def _of_clients(client: AsyncConfplane, facet: FacetName, command: Command) -> dict[str, Any]:
    """Return the answer to a strict describe of a command's entities in a facet."""
    components = [_matching(*each) for each in zip_longest(command.types, command.names)]
    family: Any = client.resources(facet)
    body: dict[str, Any] = (await family.describe(components, strict=True)).body
    return body


def _matching(kind: str, name: str | None) -> dict[str, str]:
    """Return a component of a filter: '' is the default entity, and no name matches all."""
    if name:
        return {"entityType": TYPES[kind], "matchType": "exact", "match": name}
    return {"entityType": TYPES[kind], "matchType": "any" if name is None else "default"}


async def _describe_clients(client: AsyncConfplane, command: Command) -> int:
    facets = [FacetName.CLIENT_QUOTAS, FacetName.CLIENT_CONFIGS][: 2 if "users" in command.types else 1]
    answers = await gather(_of_clients(client, facet, command) for facet in facets)
    printed: dict[str, list[str]] = {}
    for facet, answer in zip(facets, answers, strict=True):
        for entry in answer["entries"]:
            printed.setdefault(_id(entry), []).extend(_lines_of(facet, entry))
    for entity_id in sorted(printed):
        for line in printed[entity_id]:
            echo(line)
    return _unread(sorted({path for answer in answers for path in answer["skipped"]}))


def _lines_of(facet: FacetName, entry: dict[str, Any]) -> Iterable[str]:
    if facet is FacetName.CLIENT_QUOTAS:
        return [_line_of_quotas(entry)]
    return [*([_line_of_client_configs(entry)] if entry["values"] else []), *_line_of_supported(entry)]


def _id(entry: dict[str, Any]) -> str:
    return Entity.from_components((each["entityType"], each["entityName"]) for each in entry["entity"]).id


# ---------------------------------------------------------------- topics, brokers, groups, client-metrics


async def _of_resources(
    client: AsyncConfplane, kind: str, names: Sequence[str], *, synonyms: bool
) -> AsyncIterator[dict[str, Any]]:
    """Yield the results of a describe of resources of one type, in order."""
    for start in range(0, len(names), _RESOURCES):
        resources = [
            cast("ConfigResource", {"resourceType": _RESOURCE_TYPES[kind], "resourceName": name})
            for name in names[start : start + _RESOURCES]
        ]
        for result in (await client.configs.describe(resources, include_synonyms=synonyms)).body["results"]:
            yield {**result}


def _own(kind: str, result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the configs that are set on a resource itself."""
    source = f"DYNAMIC_{_RESOURCE_TYPES[kind]}_CONFIG" if result["resourceName"] else _DEFAULT_SOURCE
    return [each for each in result["configs"] if each["configSource"] == source]


async def _describe_resources(client: AsyncConfplane, command: Command) -> int:
    kind = command.types[0]
    names = command.names[:1] or await _all_names(client, kind)
    failed: list[str] = []
    async for result in _of_resources(client, kind, names, synonyms=True):
        if result["errorCode"]:
            failed.append(f"{kind[:-1]} {result['resourceName']}: {result['errorMessage']}")
            continue
        echo(_line_of_heading(kind, result["resourceName"], everything=command.everything))
        configs = result["configs"] if command.everything else _own(kind, result)
        for each in sorted(configs, key=lambda config: str(config["name"])):
            echo(_line_of_config(each))
    return _unread(failed)


async def _all_names(client: AsyncConfplane, kind: str) -> tuple[str, ...]:
    """Return the names of all entities of a type with a config, and the default of all brokers at the end."""
    listed = [
        Entity.from_id(item["id"]).components[0][1]
        async for item in client.configs.list(kind=TYPES[kind], page_size=_PAGE)
    ]
    named = sorted(filter(None, listed), key=int if kind == "brokers" else str)
    return (*named, "") if kind == "brokers" else tuple(named)


def _unread(parts: Sequence[str]) -> int:
    for part in parts:
        echo(f"Can't be read: {part}", err=True)
    return FAILED if parts else DONE


def _altering(command: Command) -> Callable[[AsyncConfplane], Coroutine[Any, Any, int]]:
    """Return a function that makes a change, prints its success message, and returns the exit code.

    Raises:
        InvalidRequestError: A key is not valid for the entity, is both added and deleted, or a value is not a number.
        The returned function raises it if a key to delete is not set.
    """
    if both := [key for key in command.added if key in command.deleted]:
        raise InvalidRequestError(f"{', '.join(both)}: a key is either added or deleted in one command, not both")
    change = EntityUpdate.of(command.entity, {**command.added, **dict.fromkeys(command.deleted)})

    async def alter(client: AsyncConfplane) -> int:
        alter_one = _alter_clients if command.quotas else _alter_resource
        result = await alter_one(client, command, change)
        echo(_line_of_altered(command))
        return report_one(result)

    return alter


async def _alter_clients(client: AsyncConfplane, command: Command, change: EntityUpdate) -> dict[str, Any]:
    """Make the change, and return its result, which is empty if only registrations are altered."""
    removes = {
        FacetName.CLIENT_QUOTAS: None in change.quotas.values(),
        FacetName.CLIENT_CONFIGS: None in change.configs.values(),
    }
    found: set[str] = set()
    for facet in filter(removes.get, removes):
        for entry in (await _of_clients(client, facet, command))["entries"]:
            found.update(each["key"] for each in entry["values"])
            found.update([SUPPORTED_CONFIGS] if entry.get("entityCompatibility") else [])
    refuse_unset(command.deleted, found)
    registrations = SUPPORTED_CONFIGS in command.deleted
    if registrations:
        del change.configs[SUPPORTED_CONFIGS]
    altered = change.quotas or change.configs
    result = await change.send(client, _options(command)) if altered else {}
    if registrations:
        # Registrations are not configs, and are in another store. Their endpoint accepts no Idempotency-Key, because
        # clearing is idempotent.
        await client.registrations.clear(command.entity)
    return result


def _options(command: Command) -> ChangeOptions:
    return ChangeOptions(wait_applied_ms=command.wait_applied_ms, break_glass=command.break_glass)


async def _alter_resource(client: AsyncConfplane, command: Command, change: EntityUpdate) -> dict[str, Any]:
    """Make the change, and return its result."""
    [kind], [name] = command.types, command.names
    if command.deleted:
        async for result in _of_resources(client, kind, [name], synonyms=False):
            refuse_unset(command.deleted, {each["name"] for each in _own(kind, result)})
    return await change.send(client, _options(command))


_KINDS: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_FEW: Final = ("consumer_byte_rate", "controller_mutation_rate", "request_percentage", "producer_byte_rate")
"""The order of up to three quotas in the tool's lines: that of a Java hash map of four buckets, filled by a broker."""
_ALL: Final = ("producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate", "request_percentage")
"""The order of four: that of eight buckets."""


def _line_of_altered(command: Command) -> str:
    """Return the line of a change; of a user and a client-id, it names the first."""
    kind, name = command.types[0], command.names[0]
    if name:
        return f"Completed updating config for {kind[:-1]} {name}."
    return f"Completed updating default config for {kind} in the cluster."


def _line_of_quotas(entry: Mapping[str, Any]) -> str:
    """Return the line of an entity's quotas; ``entry`` is from a describe's response, as in the next two functions."""
    values = {each["key"]: java_double(float(each["value"])) for each in entry["values"]}
    ordered = {key: values[key] for key in (*(_ALL if len(values) == len(_ALL) else _FEW), *values) if key in values}
    return f"Quota configs for {_entity(entry)} are {_joined(ordered)}"


def _line_of_client_configs(entry: Mapping[str, Any]) -> str:
    """Return the line of an entity's client configs."""
    return (
        f"Dynamic configs for {_entity(entry)} are {_joined({each['key']: each['value'] for each in entry['values']})}"
    )


def _line_of_supported(entry: Mapping[str, Any]) -> Iterable[str]:
    """Return a line for each software that registered the configs that it supports."""
    for each in entry["entityCompatibility"]:
        software = each["clientInformation"]
        yield (
            f"Supported dynamic configs for {_entity(entry)} are {', '.join(each['supportedConfigs'])}"
            f" ({software['softwareName']} {software['softwareVersion']})"
        )


def _line_of_heading(kind: str, name: str, *, everything: bool) -> str:
    """Return the line above the configs of a topic, broker, group or subscription."""
    if not name:
        return f"Default configs for {kind} in the cluster are:"
    return f"{'All' if everything else 'Dynamic'} configs for {kind[:-1]} {name} are:"


def _line_of_config(entry: Mapping[str, Any]) -> str:
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
