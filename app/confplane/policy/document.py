"""The YAML form of declarative rules: read strictly; every problem is reported with its location and line."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)
from yaml.reader import ReaderError

from confplane.domain.access.grants import ANY
from confplane.domain.access.identities import GROUP, USER
from confplane.domain.approvals import ApprovalDemand, Globs
from confplane.domain.entities import DEFAULT_NODE, EntityKindName, EntityType, EntityTypeName
from confplane.domain.facets import FacetNameText
from confplane.domain.policy_rules import (
    FACET_KINDS,
    KINDS,
    AllowedValues,
    Between,
    Match,
    NamePatterns,
    PolicyDocument,
    Regex,
    Rule,
)
from confplane.domain.risks import RiskKind, RiskOptions
from confplane.policy.repeated_keys import refuse_repeated_keys
from confplane.settings import UnusableSettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

M = TypeVar("M", bound=BaseModel)

_WORDS: Final = {"extra_forbidden": "there is no such field", "missing": "is missing"}
"""Types of pydantic's errors, and clearer texts for them."""


class PolicySettingsError(UnusableSettingsError):
    """Policies can't be loaded as the settings name them; ``problems`` has one line for each."""


def parse_policy(text: str, source: str) -> PolicyDocument:
    """Read a policy file.

    Args:
        text: The YAML.
        source: The name of the text in messages, usually the file's path.

    Raises:
        PolicySettingsError: The text is not valid; the error has every problem, each as ``source:line: place: text``.
    """
    document = parse(text, source, _Document)[0].to_document()
    return replace(document, version=hashlib.sha256(text.encode()).hexdigest()[:16])


def parse(text: str, source: str, model: type[M]) -> tuple[M, yaml.Node | None]:
    """Read a YAML file of any form; the arguments and errors are those of :func:`parse_policy`.

    Returns:
        The content, and its root for :func:`line_of`.
    """
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        refuse_repeated_keys(root)
        content = {} if root is None else loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f":{error.problem_mark.line + 1}"
        raise PolicySettingsError(f"{source}{line}: not valid YAML: {error.problem or error.context}") from None
    except ReaderError as error:
        line = f":{text.count(chr(10), 0, error.position) + 1}"
        raise PolicySettingsError(f"{source}{line}: not valid YAML: {error.reason}") from None
    except ValueError as error:  # a date that does not exist
        raise PolicySettingsError(f"{source}: not valid YAML: {error}") from None
    try:
        return model.model_validate(content), root
    except ValidationError as error:
        raise PolicySettingsError(
            *(
                _problem(source, root, problem["loc"], _WORDS.get(problem["type"]) or problem["msg"])
                for problem in error.errors(include_input=False, include_url=False)
            )
        ) from None


# ---------------------------------------------------------------- the form


def _listed(value: object) -> object:
    """Convert a single text to a list of one."""
    return [value] if isinstance(value, str) else value


def _number(value: object) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value):
        return value
    hint = "; to YAML 1e6 is a text: write 1000000 or 1.0e+6" if isinstance(value, str) else ""
    raise ValueError(f"must be a finite number{hint}")


def is_finite(value: float) -> bool:
    """Return True for a number that is neither infinite nor NaN, of any size."""
    return isinstance(value, int) or math.isfinite(value)


def _allowed(value: object) -> AllowedValues | Regex:
    if isinstance(value, list):
        if not value or not all(
            isinstance(item, str) or (isinstance(item, int | float) and is_finite(item)) for item in value
        ):
            raise ValueError("must be a list of texts, finite numbers, true and false, and not empty")
        return AllowedValues(tuple(value))
    if not isinstance(value, dict) or set(value) != {"regex"} or not isinstance(value["regex"], str):
        raise ValueError("must be a list of values, or {regex: ...} with a regular expression")
    try:
        return Regex(re.compile(value["regex"]))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a regular expression: {error}") from None


Text = Annotated[str, Field(min_length=1, max_length=1_000)]
_Texts = Annotated[list[Text], Field(min_length=1), BeforeValidator(_listed)]
_Number = Annotated[int | float, PlainValidator(_number)]
_Allowed = Annotated[AllowedValues | Regex, PlainValidator(_allowed)]
Principal = Annotated[str, Field(pattern=r"^User:.+$", max_length=1_000)]
RiskName = Literal["smaller-retention", "min-insync-replicas", "default-quota", "user-prefix", "lower-quota"]


class StrictModel(BaseModel):
    """A part of a file, without conversions and unknown members."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Match(StrictModel):
    facets: Annotated[list[FacetNameText], Field(min_length=1), BeforeValidator(_listed)] | None = None
    types: Annotated[list[EntityKindName], Field(min_length=1), BeforeValidator(_listed)] | None = None
    names: Annotated[dict[EntityTypeName, _Texts], Field(min_length=1)] | None = None
    principals: _Texts | None = None
    except_principals: _Texts | None = None
    owners: _Texts | None = None

    @model_validator(mode="after")
    def _matches_something(self) -> _Match:
        if not self._kinds():
            raise ValueError("matches no entity: the facets, types and names do not go together")
        for kind, texts in (self.names or {}).items():
            if kind in {EntityType.TOPIC, EntityType.GROUP, EntityType.CLIENT_METRICS} and DEFAULT_NODE in texts:
                raise ValueError(f"there is no default {kind}, so {DEFAULT_NODE} matches none")
        return self

    def _kinds(self) -> frozenset[str]:
        """Return the kinds of entity that can match."""
        of_facets = frozenset[str]().union(*(FACET_KINDS[facet] for facet in self.facets or FACET_KINDS))
        kinds = of_facets if self.types is None else of_facets.intersection(self.types)
        return frozenset(kind for kind in kinds if set(KINDS[kind]).issuperset(self.names or ()))

    def to_match(self) -> Match:
        return Match(
            facets=frozenset(self.facets or FACET_KINDS),
            kinds=frozenset(KINDS[kind] for kind in self._kinds()),
            names={EntityType(kind): NamePatterns(texts) for kind, texts in (self.names or {}).items()},
            principals=None if self.principals is None else Globs(self.principals),
            except_principals=Globs(self.except_principals or ()),
            owners=None if self.owners is None else Globs(self.owners),
        )


class _Range(StrictModel):
    min: _Number | None = None
    max: _Number | None = None

    @model_validator(mode="after")
    def _has_room(self) -> _Range:
        if self.min is None and self.max is None:
            raise ValueError("needs min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min is above max")
        return self


def _approvers(value: list[str]) -> list[str]:
    wrong = next((text for text in value if text != ANY and not text.startswith((USER, GROUP))), None)
    if wrong is not None:
        raise ValueError(f"{wrong!r} matches nobody: begin each pattern with {USER} or {GROUP}")
    return value


class _Approvals(StrictModel):
    count: Annotated[int, Field(ge=1, le=10)]
    from_: Annotated[_Texts, AfterValidator(_approvers)] = Field(default=[ANY], alias="from")
    keys: _Texts = [ANY]
    min_entities: Annotated[int, Field(ge=1, le=1_000_000)] = 1

    def to_demand(self) -> ApprovalDemand:
        return ApprovalDemand(self.count, Globs(self.from_), Globs(self.keys), self.min_entities)


class _Rule(StrictModel):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
    description: Text | None = None
    match: _Match = _Match()
    protected: Literal[True] | None = None
    allow_keys: _Texts | None = None
    deny_keys: _Texts | None = None
    ranges: Annotated[dict[Text, _Range], Field(min_length=1)] | None = None
    values: Annotated[dict[Text, _Allowed], Field(min_length=1)] | None = None
    deny_removal: _Texts | None = None
    deny_risks: Annotated[list[RiskName], Field(min_length=1), BeforeValidator(_listed)] | None = None
    approvals: _Approvals | None = None

    @model_validator(mode="after")
    def _demands_something(self) -> _Rule:
        demands = sorted(set(_Rule.model_fields) - {"name", "description", "match"})
        if all(getattr(self, demand) is None for demand in demands):
            raise ValueError(f"the rule demands nothing; it needs one or more of {', '.join(demands)}")
        return self

    def to_rule(self) -> Rule:
        ranges = ((Globs([key]), Between(bounds.min, bounds.max)) for key, bounds in (self.ranges or {}).items())
        values = ((Globs([key]), allowed) for key, allowed in (self.values or {}).items())
        return Rule(
            name=self.name,
            match=self.match.to_match(),
            description=self.description,
            protected=bool(self.protected),
            allow_keys=None if self.allow_keys is None else Globs(self.allow_keys),
            deny_keys=None if self.deny_keys is None else Globs(self.deny_keys),
            values=(*ranges, *values),
            deny_removal=None if self.deny_removal is None else Globs(self.deny_removal),
            deny_risks=frozenset(map(RiskKind, self.deny_risks or ())),
            approvals=None if self.approvals is None else self.approvals.to_demand(),
        )


class _Risks(StrictModel):
    internal_principals: Annotated[list[Principal], Field(min_length=1), BeforeValidator(_listed)] | None = None
    quota_factor: _Number | None = None

    @model_validator(mode="after")
    def _sets_something(self) -> _Risks:
        if self.internal_principals is None and self.quota_factor is None:
            raise ValueError("needs internal_principals, quota_factor or both")
        if self.quota_factor is not None and self.quota_factor < 1:
            raise ValueError("quota_factor is below 1")
        return self

    def to_options(self) -> RiskOptions:
        defaults = RiskOptions()
        return RiskOptions(
            frozenset(self.internal_principals or ()),
            defaults.quota_factor if self.quota_factor is None else self.quota_factor,
        )


class _Document(StrictModel):
    rules: Annotated[list[_Rule], Field(min_length=1)] | None = None
    risks: _Risks | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> _Document:
        if self.rules is None and self.risks is None:
            # A file that was emptied by mistake must not end all of its rules.
            raise ValueError("needs rules, risks or both")
        names = [rule.name for rule in self.rules or ()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"more than one rule has the name {', '.join(twice)}")
        return self

    def to_document(self) -> PolicyDocument:
        risks = RiskOptions() if self.risks is None else self.risks.to_options()
        return PolicyDocument(tuple(rule.to_rule() for rule in self.rules or ()), risks)


# ---------------------------------------------------------------- places


def line_of(root: yaml.Node | None, location: Iterable[int | str]) -> int:
    """Return the line at which a part of a file begins, from 1."""
    return _find(root, location)[0]


def _problem(source: str, root: yaml.Node | None, location: Iterable[int | str], message: str) -> str:
    line, place = _find(root, location)
    said = message.removeprefix("Value error, ")
    return f"{source}:{line}: {place}: {said}" if place else f"{source}:{line}: {said}"


def _find(root: yaml.Node | None, location: Iterable[int | str]) -> tuple[int, str]:
    """Return the line of a part of a file, and its place in words."""
    node, line, place = root, 1 if root is None else root.start_mark.line + 1, ""
    for step in location:
        if step == "[key]" or isinstance(node, yaml.ScalarNode):  # a text that was converted to a list of one
            break
        place += f"[{step}]" if isinstance(node, yaml.SequenceNode) else f".{step}"
        node, mark = _child(node, step)
        line = line if mark is None else mark.line + 1
    return line, place.removeprefix(".")


def _child(node: yaml.Node | None, step: int | str) -> tuple[yaml.Node | None, yaml.Mark | None]:
    """Return a node's part and its start. A mapping's entry starts at its key."""
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        return node.value[step], node.value[step].start_mark
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return value, key.start_mark
    return None, None
