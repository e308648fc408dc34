"""Policy files that are not valid: each problem with its line and place, in a person's words."""

from __future__ import annotations

from typing import get_args

import pytest

from confplane.domain.entities import EntityKindName, EntityType, EntityTypeName
from confplane.domain.facets import FacetNameText
from confplane.domain.policy_rules import FACET_KINDS, KINDS
from confplane.domain.risks import RiskKind
from confplane.policy import PolicySettingsError, document, parse_policy


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(PolicySettingsError) as caught:
        parse_policy(text, "p.yaml")
    return caught.value.problems


HEAD = "rules:\n  - name: a\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "p.yaml:1: needs rules, risks or both"),
        ("# nothing\n", "p.yaml:1: needs rules, risks or both"),
        ("- name: a\n", "p.yaml:1: Input should be a valid dictionary"),
        ("rules: []\n", "p.yaml:1: rules: List should have at least 1 item"),
        ("rules: {a: 1}\n", "p.yaml:1: rules: Input should be a valid list"),
        ("rule:\n  - name: a\n", "p.yaml:1: rule: there is no such field"),
        ("rules:\n  - protected: true\n", "p.yaml:2: rules[0].name: is missing"),
        ("rules:\n  - name: a b\n    protected: true\n", "p.yaml:2: rules[0].name: String should match pattern"),
        ("rules:\n  - name: 7\n    protected: true\n", "p.yaml:2: rules[0].name: Input should be a valid string"),
        (HEAD, "p.yaml:2: rules[0]: the rule demands nothing; it needs one or more of allow_keys, approvals, "),
        (HEAD + "    description: x\n    match: {types: user}\n", "p.yaml:2: rules[0]: the rule demands nothing"),
        (HEAD + "    protectd: true\n", "p.yaml:3: rules[0].protectd: there is no such field"),
        (HEAD + "    protected: false\n", "p.yaml:3: rules[0].protected: Input should be True"),
        (HEAD + "    protected: yes please\n", "p.yaml:3: rules[0].protected: Input should be True"),
        (HEAD + "    allow_keys: []\n", "p.yaml:3: rules[0].allow_keys: List should have at least 1 item"),
        (HEAD + "    allow_keys: [a, 1]\n", "p.yaml:3: rules[0].allow_keys[1]: Input should be a valid string"),
        (
            HEAD + "    deny_keys:\n      - a\n      - ''\n",
            "p.yaml:5: rules[0].deny_keys[1]: String should have at least 1",
        ),
        (HEAD + "    ranges: {k: {}}\n", "p.yaml:3: rules[0].ranges.k: needs min, max or both"),
        (HEAD + "    ranges:\n      k: {min: 2, max: 1}\n", "p.yaml:4: rules[0].ranges.k: min is above max"),
        (
            HEAD + "    ranges:\n      k:\n        min: 1e6\n",
            "p.yaml:5: rules[0].ranges.k.min: must be a finite number; to YAML 1e6",
        ),
        (HEAD + "    ranges: {k: {max: .inf}}\n", "p.yaml:3: rules[0].ranges.k.max: must be a finite number"),
        (HEAD + "    ranges: {k: {max: .nan}}\n", "p.yaml:3: rules[0].ranges.k.max: must be a finite number"),
        (HEAD + "    ranges: {k: {max: true}}\n", "p.yaml:3: rules[0].ranges.k.max: must be a finite number"),
        (HEAD + "    ranges: {k: {maximum: 1}}\n", "p.yaml:3: rules[0].ranges.k.maximum: there is no such field"),
        (HEAD + "    ranges: {1: {max: 1}}\n", "p.yaml:3: rules[0].ranges.1: Input should be a valid string"),
        (HEAD + "    ranges: {}\n", "p.yaml:3: rules[0].ranges: Dictionary should have at least 1 item"),
        (HEAD + "    values: {k: []}\n", "p.yaml:3: rules[0].values.k: must be a list of texts, finite numbers"),
        (HEAD + "    values: {k: [.nan]}\n", "p.yaml:3: rules[0].values.k: must be a list of texts, finite numbers"),
        (HEAD + "    values: {k: [2001-01-01]}\n", "p.yaml:3: rules[0].values.k: must be a list of texts"),
        (HEAD + "    values: {k: delete}\n", "p.yaml:3: rules[0].values.k: must be a list of values, or {regex: ...}"),
        (
            HEAD + "    values: {k: {regexp: a}}\n",
            "p.yaml:3: rules[0].values.k: must be a list of values, or {regex: ...}",
        ),
        (
            HEAD + "    values: {k: {regex: 1}}\n",
            "p.yaml:3: rules[0].values.k: must be a list of values, or {regex: ...}",
        ),
        (
            HEAD + "    values: {k: {regex: '(a'}}\n",
            "p.yaml:3: rules[0].values.k: is not a regular expression: missing )",
        ),
        (HEAD + "    values: {k: {regex: 'a{99999999999}'}}\n", "rules[0].values.k: is not a regular expression"),
        (
            HEAD + "    match: {facet: configs}\n    protected: true\n",
            "p.yaml:3: rules[0].match.facet: there is no such field",
        ),
        (
            HEAD + "    match: {facets: quotas}\n    protected: true\n",
            "p.yaml:3: rules[0].match.facets: Input should be 'client-quotas', ",
        ),
        (
            HEAD + "    match: {types: users}\n    protected: true\n",
            "p.yaml:3: rules[0].match.types: Input should be 'user', ",
        ),
        (
            HEAD + "    match:\n      names:\n        users: a\n    protected: true\n",
            "p.yaml:5: rules[0].match.names.users: Input should be 'user', ",
        ),
        (
            HEAD + "    match: {names: {}}\n    protected: true\n",
            "p.yaml:3: rules[0].match.names: Dictionary should have",
        ),
        (
            HEAD + "    match: {names: {broker: 1}}\n    protected: true\n",
            "p.yaml:3: rules[0].match.names.broker: Input should be a valid list",
        ),
        (
            HEAD + "    match: {names: {user: a, topic: b}}\n    protected: true\n",
            "p.yaml:3: rules[0].match: matches no entity",
        ),
        (
            HEAD + "    match: {facets: configs, types: user}\n    protected: true\n",
            "p.yaml:3: rules[0].match: matches no entity",
        ),
        (
            HEAD + "    match: {types: user, names: {client-id: a}}\n    protected: true\n",
            "rules[0].match: matches no entity",
        ),
        (
            HEAD + "    match: {names: {topic: <default>}}\n    protected: true\n",
            "rules[0].match: there is no default topic",
        ),
        (
            HEAD + "    protected: true\n  - name: a\n    protected: true\n",
            "p.yaml:1: more than one rule has the name a",
        ),
        (HEAD + "    deny_risks: huge\n", "p.yaml:3: rules[0].deny_risks: Input should be 'smaller-retention', "),
        ("risks: {}\n", "p.yaml:1: risks: needs internal_principals, quota_factor or both"),
        ("risks: {quota_factor: 0.5}\n", "p.yaml:1: risks: quota_factor is below 1"),
        ("risks: {quota_factor: ten}\n", "p.yaml:1: risks.quota_factor: must be a finite number"),
        ("risks:\n  internal_principals: kafka\n", "p.yaml:2: risks.internal_principals: String should match pattern"),
        (HEAD + "    deny_keys: a\n    deny_keys: b\n", "p.yaml:4: not valid YAML: the key 'deny_keys' is there twice"),
        ("rules: [\n", "p.yaml:2: not valid YAML: expected the node content"),
        ("rules: !!python/name:os.system x\n", "p.yaml:1: not valid YAML: could not determine a constructor"),
        ("rules: []\n---\nrules: []\n", "p.yaml:2: not valid YAML: but found another document"),
        ("rules: &a [*a]\n", "p.yaml:1: rules[0]"),
        ("rules:\n  \x07\n", "p.yaml:2: not valid YAML: special characters are not allowed"),
        ("rules: 2001-99-99\n", "p.yaml: not valid YAML: month must be in"),
    ],
)
def test_each_mistake_is_reported_with_its_line(text: str, problem: str) -> None:
    assert problem in "\n".join(problems(text))


def test_all_mistakes_are_reported_at_once() -> None:
    found = problems(HEAD + "    allow_key: a\n  - name: b\n    ranges:\n      k: {min: x}\n")
    assert [line.split(": ")[0] for line in found] == ["p.yaml:3", "p.yaml:6"]
    assert [line.split(": ")[1] for line in found] == ["rules[0].allow_key", "rules[1].ranges.k.min"]


def test_anchors_and_single_texts_are_taken() -> None:
    rules = parse_policy(
        "rules:\n"
        "  - {name: a, match: &m {types: [topic]}, deny_keys: &k [x, 'y.*']}\n"
        "  - {name: b, match: *m, deny_removal: *k}\n"
        "  - {name: c, deny_keys: z}\n",
        "p.yaml",
    ).rules
    assert [rule.name for rule in rules] == ["a", "b", "c"]
    assert rules[1].match.kinds == {(EntityType.TOPIC,)}
    assert str(rules[1].deny_removal) == "x, y.*"
    assert str(rules[2].deny_keys) == "z"


def test_the_words_of_the_form_are_those_of_the_rules() -> None:
    assert set(get_args(FacetNameText)) == set(FACET_KINDS)
    assert set(get_args(EntityKindName)) == set(KINDS)
    assert set(get_args(document.RiskName)) == {kind.value for kind in RiskKind}
    assert set(get_args(EntityTypeName)) == {kind.value for kind in EntityType}
    assert frozenset().union(*FACET_KINDS.values()) == set(KINDS)
