"""Alters entities, and isolates refused keys: which keys the cluster refuses, so that the others can be sent.

Kafka refuses an entity as a whole. The keys are found with ``validate_only`` requests, which change nothing, so that
the accepted keys are then sent together. All refused entities are searched at the same time, in shared requests.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from confplane.domain.errors import UnavailableError
from confplane.services.ports.applying import AlterApplied, Alteration, AlterRefused, AlterRetriable
from confplane.services.ports.kafka import KraftEntityType, kraft_type_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from confplane.services.kraft.apply.deliveries import EntityDelivery
    from confplane.services.ports.applying import AlterOutcome, WritableKafkaCluster

    Ask = Callable[[Sequence[Alteration]], Awaitable[Sequence[AlterOutcome]]]
    """Asks the cluster whether it would accept some alterations."""

_OF_THE_ENTITY: Final = frozenset({3, 17})
"""Kafka's codes of an absent topic and of an invalid one: no part of such an entity is accepted."""


class _InconclusiveError(Exception):
    """The cluster gave no clear answer to a question."""


async def alter_isolated(
    cluster: WritableKafkaCluster, deliveries: Sequence[EntityDelivery], deadline: float
) -> dict[str, AlterOutcome]:
    """Return the outcomes of deliveries by entity id; of a refused entity, alter the keys that the cluster accepts.

    A delivery without values counts as applied.

    Raises:
        UnavailableError: Nothing was sent.
    """
    ended: dict[str, AlterOutcome] = {each.entity.id: AlterApplied() for each in deliveries}
    if requested := [each for each in deliveries if each.delivery.values]:
        answers = await _alter(cluster, requested, deadline)
        ended |= {each.entity.id: each.to_outcome(answer) for each, answer in zip(requested, answers, strict=True)}
    return ended


async def _alter(
    cluster: WritableKafkaCluster, deliveries: Sequence[EntityDelivery], deadline: float
) -> list[AlterOutcome]:
    alterations = [each.alteration for each in deliveries]
    is_quotas = kraft_type_of(alterations[0].entity) is KraftEntityType.QUOTAS
    alter = cluster.alter_quotas if is_quotas else cluster.alter_configs
    outcomes = await alter(alterations, deadline)
    refused = {
        at: (alteration, outcome)
        for at, (alteration, outcome) in enumerate(zip(alterations, outcomes, strict=True))
        if isinstance(outcome, AlterRefused) and outcome.code not in _OF_THE_ENTITY and len(alteration.values) > 1
    }
    ask = partial(alter, deadline=deadline, validate_only=True)
    again: dict[int, tuple[Alteration, Mapping[str, AlterRefused]]] = {}
    for at, found in zip(refused, await _isolate(list(refused.values()), ask), strict=True):
        alteration, _ = refused[at]
        if isinstance(found, AlterRetriable):
            outcomes[at] = found
        elif accepted := {key: value for key, value in alteration.values.items() if key not in found}:
            again[at] = Alteration(alteration.entity, accepted), found
        elif deliveries[at].absent:
            outcomes[at] = AlterApplied(found)
    if not again:
        return outcomes
    try:
        answered = await alter([alteration for alteration, _ in again.values()], deadline)
    except UnavailableError as error:
        answered = [AlterRetriable(error.detail)] * len(again)
    for (at, (_, keys)), outcome in zip(again.items(), answered, strict=True):
        match outcome:
            case AlterApplied():
                outcomes[at] = AlterApplied(keys)
            case AlterRefused():
                outcomes[at] = AlterRetriable(f"The cluster now refuses other keys: {outcome.text}")
            case _:
                outcomes[at] = outcome
    return outcomes


async def _isolate(
    refused: Sequence[tuple[Alteration, AlterRefused]], ask: Ask
) -> list[Mapping[str, AlterRefused] | AlterRetriable]:
    """Return the refused keys of each refused entity, in order. One whose keys can't be found now is retriable."""
    alterations = [alteration for alteration, _ in refused]
    found: list[Mapping[str, AlterRefused] | AlterRetriable | None] = [None] * len(alterations)
    searches = [_search(alteration.values, refusal) for alteration, refusal in refused]
    questions = {at: next(search) for at, search in enumerate(searches)}
    while questions:
        asked = [
            Alteration(alterations[at].entity, {key: alterations[at].values[key] for key in keys})
            for at, keys in questions.items()
        ]
        try:
            answers = await ask(asked)
        except UnavailableError as error:
            answers = [AlterRetriable(error.detail)] * len(asked)
        for at, answer in zip(list(questions), answers, strict=True):
            try:
                questions[at] = searches[at].send(answer)
            except StopIteration as end:
                found[at] = end.value
                del questions[at]
            except _InconclusiveError as error:
                found[at] = AlterRetriable(f"The cluster refused the entity, and which keys is not known: {error}")
                del questions[at]
    return [each for each in found if each is not None]


def _search(
    values: Mapping[str, str | None], refusal: AlterRefused
) -> Generator[frozenset[str], AlterOutcome, dict[str, AlterRefused]]:
    """Yield sets of keys to ask about, and return the refused keys."""
    accepted: frozenset[str] = frozenset()
    refused: dict[str, AlterRefused] = {}
    known: dict[frozenset[str], AlterRefused] = {frozenset(values): refusal}

    def add(keys: Sequence[str]) -> Generator[frozenset[str], AlterOutcome, None]:
        nonlocal accepted
        question = accepted | frozenset(keys)
        outcome: AlterOutcome = known[question] if question in known else (yield question)
        if isinstance(outcome, AlterApplied):
            accepted = question
        elif not isinstance(outcome, AlterRefused):
            raise _InconclusiveError(outcome.reason)
        else:
            known[question] = outcome
            if len(keys) == 1:
                refused[keys[0]] = outcome
                return
            # Kafka's message often names the refused key, so the other keys are tried first.
            first = [key for key in keys if key not in outcome.text]
            if len(first) in {0, len(keys)}:
                first = list(keys[: len(keys) // 2])
            yield from add(first)
            yield from add([key for key in keys if key not in first])

    again, before = sorted(values), -1
    # A key may depend on others that were accepted after it.
    while again and len(accepted) > before:
        before = len(accepted)
        refused.clear()
        yield from add(again)
        again = list(refused)
    return refused
