"""Shell completion of arguments with names that the service knows.

A completion waits for the service for two seconds at most, or until a renewed token is stored, and is silent if that
fails, because an error would interrupt the command line.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

import typer  # noqa: TC002 - typer reads the annotations of completions

from confplane.cli.remote import logins, profiles, session
from confplane.cli.remote.entities import PAIR, entity_of, facets_of_kind, keys_of, keys_of_type, read_entity_values
from confplane.cli.remote.profiles import ProfileError, Profiles
from confplane.client import ClientError
from confplane.domain.entities import EntityType
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from confplane.client import AsyncConfplane

_PATIENCE_S: Final = 2.0
_MOST: Final = 1000
"""Maximum number of entities that are requested."""
_BEGUN: Final = "_CONFPLANE_BEGUN"
"""Variable with the part of an argument that bash has split off."""


def prepare() -> None:
    """Prepare this process for a completion: it prompts for nothing and shows no errors."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 2):
        os.dup2(nothing, stream)
    join_words_of_bash()


def join_words_of_bash() -> None:
    """Join words that bash splits: it treats ``user=alice`` as the three words ``user``, ``=``, ``alice``.

    bash then replaces only the last of them, so the words before it are stored (:func:`_completed`).
    """
    words, number = os.environ.get("COMP_WORDS"), os.environ.get("COMP_CWORD", "")
    if words is None or not number.isdecimal() or "bash" not in os.environ.get("_CONFPLANE_COMPLETE", ""):
        return
    whole, begun = _joined(words.split("\n")[: int(number) + 1])
    os.environ["COMP_WORDS"] = "\n".join(whole)
    os.environ["COMP_CWORD"] = str(len(whole) - 1)
    os.environ[_BEGUN] = begun


def _joined(words: list[str]) -> tuple[list[str], str]:
    """Return the joined words, of which only the last may be incomplete, and the part before the last."""
    whole: list[str] = []
    begun = ""
    joins = False
    for word in words:
        if word == "=" and whole:
            begun, joins = f"{whole.pop()}=", True
            whole.append(begun)
        elif joins:
            whole[-1] += word
            joins = False
        else:
            begun = ""
            whole.append(word)
    if begun:
        whole[-1] = whole[-1].removeprefix(begun)
    return whole, begun


def _completed(found: list[str], incomplete: str) -> list[str]:
    """Return the names with the argument as prefix, without the part that bash does not replace."""
    begun = os.environ.get(_BEGUN, "")
    return [each.removeprefix(begun) for each in found if each.startswith(begun + incomplete)]


def profile_names(incomplete: str) -> list[str]:
    """Return the names of profiles."""
    try:
        return _completed(list(Profiles.read().named), incomplete)
    except ProfileError:
        return []


def cluster_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of clusters."""

    async def names(client: AsyncConfplane) -> list[str]:
        return [item["name"] for item in (await client.clusters.list()).body["items"]]

    return _completed(_asked(ctx, names), incomplete)


def entity_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return ids of entities that have configs, or the types while several are possible."""
    begun = os.environ.get(_BEGUN, "") + incomplete
    kind, equals, _ = begun.partition("=")
    kinds = [kind] if equals else [each.value for each in EntityType if each.startswith(kind)]
    if len(kinds) != 1:
        return _completed([f"{each}=" for each in kinds], incomplete)

    async def ids(client: AsyncConfplane) -> list[str]:
        wanted = PAIR if "," in begun else kinds[0]
        found: dict[str, None] = {}
        for facet in facets_of_kind(wanted):
            async for page in client.resources(facet).list(kind=wanted, page_size=_MOST).pages():
                found |= dict.fromkeys(item["id"] for item in page["items"])
                if page["items"]:  # an empty page may have a successor
                    break
        return list(found)

    return _completed(_asked(ctx, ids) or ([] if equals else [f"{kinds[0]}="]), incomplete)


def keys_to_set(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return keys that the entity before them can have, each with its ``=``."""
    if "=" in os.environ.get(_BEGUN, "") + incomplete:
        return []

    async def possible(client: AsyncConfplane) -> list[str]:
        return await keys_of_type(client, entity_of(ctx.params["entity"], hint=False).types[0])

    return _completed([f"{key}=" for key in _asked(ctx, possible)], incomplete)


def keys_that_are_set(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return keys that the entity before them has."""

    async def present(client: AsyncConfplane) -> list[str]:
        answers = await read_entity_values(client, entity_of(ctx.params["entity"], hint=False))
        return [key for facet, answer in answers.items() for key in keys_of(facet, answer)]

    return _completed(_asked(ctx, present), incomplete)


def _asked(ctx: typer.Context, work: Callable[[AsyncConfplane], Coroutine[Any, Any, list[str]]]) -> list[str]:
    """Return the answer of the command line's service, or nothing if it does not answer in time."""
    import asyncio  # noqa: PLC0415 - only while completing
    import threading  # noqa: PLC0415 - as above

    found: list[str] = []

    async def connected() -> None:
        async with session.client_of(
            profiles.choose_profile(ctx.params.get("profile"), ctx.params.get("cluster"))
        ) as client:
            found.extend(await work(client))

    def ask() -> None:
        with contextlib.suppress(ProfileError, ClientError, InvalidRequestError):
            asyncio.run(connected())

    # A separate thread, because a token command can't be interrupted. It ends with the process.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_PATIENCE_S)
    if not asking.is_alive():
        return found
    logins.RENEWAL.acquire()  # until the process ends: a renewal in progress is completed, and no other begins
    return []
