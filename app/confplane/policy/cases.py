"""Test cases of a policy file: changes, each with the expected decision (docs/policies.md).

A case is decided by the rules of the file alone. Values are taken as stored ones, and are not validated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, Field, PlainValidator, model_validator

from confplane.domain.broker_keys import is_sensitive
from confplane.domain.broker_levels import ConfigLevels
from confplane.domain.definitions import catalog_of
from confplane.domain.entities import Entity, EntityType
from confplane.domain.errors import InvalidRequestError, PolicyViolationError
from confplane.domain.facets import FacetNameText  # noqa: TC001 - pydantic reads it
from confplane.domain.policy_rules import FACET_KINDS, PolicyRequest, RulePolicy, spelled
from confplane.domain.releases import ON_ZOOKEEPER
from confplane.domain.risks import RiskFacts, find_risks
from confplane.policy.document import Principal, RiskName, StrictModel, Text, is_finite, line_of, parse
from confplane.policy.loading import read_policy, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from confplane.domain.policy_rules import PolicyDocument

_CATALOG: Final = catalog_of(ON_ZOOKEEPER)


def _stored(value: object) -> str:
    if isinstance(value, str) or (isinstance(value, int | float) and is_finite(value)):
        return spelled(value)
    raise ValueError("must be a text, a finite number, true or false")


def _entity_id(text: str) -> str:
    try:
        return Entity.from_id(text).id
    except InvalidRequestError as error:
        raise ValueError(error.detail) from None


_Values = dict[Text, Annotated[str, PlainValidator(_stored)]]
_EntityId = Annotated[str, AfterValidator(_entity_id)]


class _Case(StrictModel):
    name: Text
    principal: Principal
    behalf_of: Principal | None = None
    entity: _EntityId
    facet: FacetNameText | None = None
    stored: _Values = Field(default_factory=dict)
    set: _Values = Field(default_factory=dict)
    remove: list[Text] = Field(default_factory=list)
    others: dict[_EntityId, _Values] = Field(default_factory=dict)
    replication_factor: Annotated[int, Field(ge=1)] | None = None
    altered: list[_EntityId] = Field(default_factory=list)
    owners: dict[Text, Text] = Field(default_factory=dict)
    expect: Literal["allowed", "refused", "approval"]
    rule: Text | None = None
    risks: list[RiskName] | None = None

    @model_validator(mode="after")
    def _is_a_change(self) -> _Case:
        if all(self.stored.get(key) == value for key, value in self.set.items()) and not self.remove:
            raise ValueError("changes nothing; it needs set, remove or both")
        missing = sorted(set(self.remove) - self.stored.keys())
        if missing:
            raise ValueError(f"removes {missing[0]}, which stored does not have")
        unowned = sorted(self.owners.keys() - self.stored.keys())
        if unowned:
            raise ValueError(f"{unowned[0]} has an owner, and stored does not have it")
        if set(self.remove) & self.set.keys():
            raise ValueError(f"sets and removes {min(set(self.remove) & self.set.keys())}")
        if self.rule is not None and self.expect == "allowed":
            raise ValueError("rule is the rule that refuses or asks for approval, and the case expects allowed")
        kind = ",".join(Entity.from_id(self.entity).types)
        if self.facet is not None and kind not in FACET_KINDS[self.facet]:
            raise ValueError(f"{self.entity} has no {self.facet}")
        return self

    def to_request(self, document: PolicyDocument) -> PolicyRequest:
        """Return the question to the rules, with the risks of the change."""
        entity = Entity.from_id(self.entity)
        facet = self.facet or _facet_of(entity)
        after = {key: value for key, value in (self.stored | self.set).items() if key not in self.remove}
        changed = frozenset(key for key in self.stored.keys() | after.keys() if self.stored.get(key) != after.get(key))
        levels = self._levels(entity, self.stored), self._levels(entity, after)
        facts = RiskFacts(
            entity, changed, self.stored, after, self._other, levels, replication_factor=self.replication_factor
        )
        return PolicyRequest(
            cluster="test",
            principal=self.principal,
            facet=facet,
            entity=entity,
            set=_shown(entity, {key: after[key] for key in changed & after.keys()}),
            removed=changed - after.keys(),
            before=_shown(entity, self.stored),
            after=_shown(entity, after),
            validate_only=True,
            pointers={},
            behalf_of=self.behalf_of,
            risks=() if facet == "client-configs" else find_risks(facts, document.risks),
            altered=frozenset(_of_facet(each, facet) for each in self.altered),
            owners=self.owners,
        )

    def _other(self, entity_id: str) -> Mapping[str, str]:
        return self.others.get(entity_id, {})

    def _levels(self, entity: Entity, own: Mapping[str, str]) -> ConfigLevels:
        maps = {**self.others, entity.id: own}
        broker = maps[entity.id] if entity.get(EntityType.BROKER) is not None else {}
        return ConfigLevels(_CATALOG, default=maps.get("broker", {}), broker=broker)


def _facet_of(entity: Entity) -> str:
    """Return the facet of an entity that a case means if it names none."""
    return next(name for name, kinds in FACET_KINDS.items() if ",".join(entity.types) in kinds)


def _of_facet(entity_id: str, facet: str) -> tuple[str, Entity]:
    """Return the facet in which an entity was altered: that of the case, if the entity has it."""
    entity = Entity.from_id(entity_id)
    return facet if ",".join(entity.types) in FACET_KINDS[facet] else _facet_of(entity), entity


def _shown(entity: Entity, values: Mapping[str, str]) -> dict[str, str | None]:
    """Return values as policies see them: without secrets, which only brokers have."""
    of_broker = entity.types == (EntityType.BROKER,)
    return {key: None if of_broker and is_sensitive(_CATALOG, key) else value for key, value in values.items()}


class _Cases(StrictModel):
    policy: Text
    cases: Annotated[list[_Case], Field(min_length=1)]


class CaseResult(NamedTuple):
    """The decision on a case."""

    name: str
    line: int
    """The line of the file at which the case begins."""
    decision: str
    """``allowed``, the text of the refusal, or the approvals that rules ask for."""
    failure: str | None
    """The difference from what the case expects; None if there is none."""


def run_cases(path: Path) -> Iterator[CaseResult]:
    """Decide the cases of a file by the policy file that it names, relative to its own folder.

    Raises:
        PolicySettingsError: A file can't be read, or is not valid; the error has every problem.
    """
    found, root = parse(read_text(path), str(path), _Cases)
    document = read_policy(path.parent / found.policy)
    policy = RulePolicy("rules", document)
    for number, case in enumerate(found.cases):
        request = case.to_request(document)
        asked = "; ".join(map(str, policy.requirements(request)))
        kind, decision = ("approval", asked) if asked else ("allowed", "allowed")
        try:
            policy.check(request)
        except PolicyViolationError as error:
            kind, decision = "refused", error.detail
        risks = sorted({risk.kind.value for risk in request.risks})
        yield CaseResult(case.name, line_of(root, ("cases", number)), decision, _failure(case, kind, decision, risks))


def _failure(case: _Case, kind: str, decision: str, risks: list[str]) -> str | None:
    refused_by, asked_by = f"rule {case.rule!r}: ", f"rule {case.rule!r} asks "
    by_rule = case.rule is None or (asked_by in decision if kind == "approval" else decision.startswith(refused_by))
    if case.expect != kind or not by_rule:
        expected = case.expect if case.rule is None else f"{case.expect} by {case.rule}"
        return f"expected {expected}, and the decision is {decision}"
    if case.risks is not None and sorted(set(case.risks)) != risks:
        return f"expected the risks {', '.join(case.risks) or 'none'}, and they are {', '.join(risks) or 'none'}"
    return None
