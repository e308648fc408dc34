"""Rules against requests: what each demand and each part of a match does."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.approvals import Globs, Requirement
from confplane.domain.entities import Entity
from confplane.domain.errors import PolicyViolationError
from confplane.domain.policies import Policies
from confplane.domain.policy_rules import LONGEST_MATCHED, PolicyRequest, RulePolicy
from confplane.policy import parse_policy
from tests.unit.policy.requests import request


def policies(*rules: str) -> Policies:
    """Take rules in YAML's flow style, without names."""
    content = [{"name": f"r{number}", **yaml.safe_load(rule)} for number, rule in enumerate(rules)]
    return Policies([RulePolicy("rules", parse_policy(yaml.safe_dump({"rules": content}, sort_keys=False), "p.yaml"))])


def refusal(asked: PolicyRequest, *rules: str) -> PolicyViolationError | None:
    try:
        policies(*rules).check(asked)
    except PolicyViolationError as error:
        return error
    return None


SHIELD = "{match: %s, protected: true}"


@pytest.mark.parametrize(
    ("match", "entity", "meant"),
    [
        ("{}", "user=a", True),
        ("{}", "broker", True),
        ("{facets: configs}", "topic=t", True),
        ("{facets: configs}", "user=a", False),
        ("{facets: [configs, client-quotas]}", "user=a", True),
        ("{types: user}", "user=a", True),
        ("{types: user}", "user", True),
        ("{types: user}", "user=a,client-id=c", False),
        ("{types: ['user,client-id', ip]}", "user=a,client-id=c", True),
        ("{types: ['user,client-id', ip]}", "ip=10.0.0.1", True),
        ("{types: ['user,client-id', ip]}", "client-id=c", False),
        ("{names: {user: a}}", "user=a", True),
        ("{names: {user: a}}", "user=a,client-id=c", True),
        ("{names: {user: a}}", "user=A", False),
        ("{names: {user: a}}", "user=ab", False),
        ("{names: {user: a}}", "client-id=a", False),
        ("{names: {user: a*}}", "user=ab", True),
        ("{names: {user: a*}}", "user=a", True),
        ("{names: {user: a*}}", "user=ba", False),
        ("{names: {user: 'a*'}}", "user=a~0Ab", True),
        ("{names: {user: '?'}}", "user=~C3~A9", True),
        ("{names: {user: 'CN=*, O=Acme'}}", "user=CN~3Dx~2C~20O~3DAcme", True),
        ("{names: {user: '*'}}", "user", False),
        ("{names: {user: <default>}}", "user", True),
        ("{names: {user: <default>}}", "user=a", False),
        ("{names: {user: <default>}}", "user=~3Cdefault~3E", False),
        ("{names: {user: '[<]default>'}}", "user=~3Cdefault~3E", True),
        ("{names: {user: '[<]default>'}}", "user", False),
        ("{names: {user: ['*', <default>]}}", "user,client-id=c", True),
        ("{names: {user: a, client-id: 'c*'}}", "user=a,client-id=cc", True),
        ("{names: {user: a, client-id: 'c*'}}", "user=a,client-id=d", False),
        ("{names: {user: a, client-id: 'c*'}}", "user=a,client-id", False),
        ("{names: {user: a, client-id: 'c*'}}", "user=a", False),
        ("{names: {client-id: c}}", "user=a,client-id=c", True),
        ("{names: {client-id: c}, types: client-id}", "user=a,client-id=c", False),
        ("{names: {broker: <default>}}", "broker", True),
        ("{names: {broker: ['1', '2']}}", "broker=2", True),
        ("{names: {broker: ['1', '2']}}", "broker=3", False),
        ("{names: {topic: '[!_]*'}}", "topic=orders", True),
        ("{names: {topic: '[!_]*'}}", "topic=__consumer_offsets", False),
        ("{principals: 'User:ci'}", "topic=t", True),
        ("{principals: 'User:c*'}", "topic=t", True),
        ("{principals: 'User:admin'}", "topic=t", False),
        ("{principals: ci}", "topic=t", False),
        ("{except_principals: ['User:admin', 'User:c?']}", "topic=t", False),
        ("{except_principals: 'User:admin'}", "topic=t", True),
        ("{principals: 'User:*', except_principals: 'User:ci'}", "topic=t", False),
    ],
)
def test_what_a_match_means(match: str, entity: str, meant: bool) -> None:  # noqa: FBT001 - a column
    assert (refusal(request(entity, "k=1"), SHIELD % match) is not None) is meant


@pytest.mark.parametrize(
    ("rule", "changes", "refused"),
    [
        ("allow_keys: [a, 'b.*']", ["a=1", "b.c=2", "-b.d"], None),
        ("allow_keys: a", ["a=1", "A=1"], "A can't be altered here; only these can: a"),
        ("allow_keys: a", ["-b"], "b can't be altered here; only these can: a"),
        ("deny_keys: ['ssl.*', x]", ["ssly=1", "y=1"], None),
        ("deny_keys: ['ssl.*', x]", ["ssl.k=1"], "ssl.k can't be altered here"),
        ("deny_keys: ['ssl.*', x]", ["-x"], "x can't be altered here"),
        ("ranges: {k: {min: 1, max: 5}}", ["k=1", "other=9"], None),
        ("ranges: {k: {min: 1, max: 5}}", ["k=5.0"], None),
        ("ranges: {k: {min: 1, max: 5}}", ["k= 5 "], None),
        ("ranges: {k: {min: 1, max: 5}}", ["k=0"], "the value of k must be a number, at least 1 and at most 5"),
        ("ranges: {k: {min: 1, max: 5}}", ["k=5.000001"], "must be a number, at least 1 and at most 5"),
        ("ranges: {k: {max: 5}}", ["k=-9223372036854775808"], None),
        ("ranges: {k: {max: 5}}", ["k=6"], "must be a number, at most 5"),
        ("ranges: {k: {max: 5}}", ["k=NaN"], "must be a number, at most 5"),
        ("ranges: {k: {min: 5}}", ["k=NaN"], "must be a number, at least 5"),
        ("ranges: {k: {min: 5}}", ["k=five"], "must be a number, at least 5"),
        ("ranges: {k: {min: 5}}", ["k="], "must be a number, at least 5"),
        ("ranges: {k: {min: 5}}", ["k=1_000"], "must be a number, at least 5"),
        ("ranges: {k: {min: 5}}", ["k=" + "9" * 5000], None),
        ("ranges: {k: {max: 9007199254740992}}", ["k=9007199254740993"], "at most 9007199254740992"),
        ("ranges: {k: {max: 10000000}}", ["k=1.0E7"], None),
        ("ranges: {k: {max: 10000000}}", ["k=1.0000001E7"], "at most 10000000"),
        ("ranges: {k: {max: 0.5}}", ["k=0.6"], "at most 0.5"),
        ("ranges: {k: {min: 5}}", ["-k"], None),
        ("ranges: {'*_rate': {max: 5}, a_rate: {min: 2}}", ["a_rate=3"], None),
        ("ranges: {'*_rate': {max: 5}, a_rate: {min: 2}}", ["a_rate=6"], "at most 5"),
        ("ranges: {'*_rate': {max: 5}, a_rate: {min: 2}}", ["a_rate=1"], "at least 2"),
        ("values: {k: [delete, compact]}", ["k=delete"], None),
        ("values: {k: [delete, compact]}", ["k=Delete"], "the value of k must be one of delete, compact"),
        ("values: {k: [delete, compact]}", ["k=delete,compact"], "must be one of delete, compact"),
        ("values: {k: [2, 2.5]}", ["k=2.0"], None),
        ("values: {k: [2, 2.5]}", ["k=2.5"], None),
        ("values: {k: [2, 2.5]}", ["k=3"], "must be one of 2, 2.5"),
        ("values: {k: [2, 2.5]}", ["k=two"], "must be one of 2, 2.5"),
        ("values: {k: ['2']}", ["k=2.0"], "must be one of 2"),
        ("values: {k: [false]}", ["k= False"], None),
        ("values: {k: [false]}", ["k=0"], "must be one of false"),
        ("values: {k: [true]}", ["k=1"], "must be one of true"),
        ("values: {k: [1]}", ["k=true"], "must be one of 1"),
        ("values: {k: {regex: 'a|b+'}}", ["k=bb"], None),
        ("values: {k: {regex: 'a|b+'}}", ["k=ab"], "must match the regular expression a|b+"),
        ("values: {k: {regex: 'a|b+'}}", ["k=a\n"], "must match the regular expression a|b+"),
        ("values: {k: {regex: '.*'}}", ["k=" + "x" * LONGEST_MATCHED], None),
        ("values: {k: {regex: '.*'}}", ["k=" + "x" * (LONGEST_MATCHED + 1)], "must match the regular expression .*"),
        ("deny_removal: ['retention.*']", ["retention.ms=1", "-segment.ms"], None),
        ("deny_removal: ['retention.*']", ["-retention.ms"], "retention.ms can't be removed here"),
        ("protected: true", ["k=1"], "topic=orders is protected from changes by User:ci"),
        ("protected: true", ["-k"], "topic=orders is protected from changes by User:ci"),
        ("protected: true", [], None),
        ("{allow_keys: a, deny_removal: a}", ["a=1"], None),
        ("{allow_keys: a, deny_removal: a}", ["-a"], "a can't be removed here"),
    ],
)
def test_what_a_rule_demands(rule: str, changes: list[str], refused: str | None) -> None:
    found = refusal(request("topic=orders", *changes), rule)
    if refused is None:
        assert found is None
    else:
        assert found is not None
        assert found.detail.startswith("rule 'r0': ")
        assert refused in found.detail
        assert found.code == 44


@pytest.mark.parametrize("rule", ["ranges: {'p*': {min: 1}}", "values: {'p*': [s3cret]}", "values: {pw: {regex: .*}}"])
def test_sensitive_values_are_refused_where_they_would_have_to_be_checked(rule: str) -> None:
    asked = request("broker=0", "pw=s3cret", sensitive=frozenset({"pw"}))
    found = refusal(asked, rule)
    assert found is not None
    assert found.detail == "rule 'r0': pw is sensitive, so its value can't be checked, as this rule demands"
    assert found.pointer == "/ops/0"
    assert refusal(request("broker=0", "-pw", sensitive=frozenset({"pw"})), rule) is None
    assert refusal(asked, "allow_keys: pw") is None


def test_no_refusal_repeats_the_value() -> None:
    for rule in ("ranges: {k: {max: 1}}", "values: {k: [a]}", "values: {k: {regex: a}}", "deny_keys: k"):
        found = refusal(request("topic=t", "k=geheim"), rule)
        assert found is not None
        assert "geheim" not in found.detail


def test_the_first_rule_of_the_file_that_is_violated_counts() -> None:
    rules = ("{match: {names: {topic: other}}, protected: true}", "ranges: {b: {max: 1}}", "deny_keys: a")
    asked = request("topic=orders", "a=1", "b=2")
    found = refusal(asked, *rules)
    assert found is not None
    assert (found.detail.partition(":")[0], found.pointer) == ("rule 'r1'", "/ops/1")
    found = refusal(asked, rules[2], rules[1])
    assert found is not None
    assert (found.detail.partition(":")[0], found.pointer) == ("rule 'r0'", "/ops/0")


def test_the_description_says_what_to_do() -> None:
    found = refusal(request("topic=t", "k=1"), "{description: Ask the platform team., deny_keys: k}")
    assert found is not None
    assert found.detail == "rule 'r0': k can't be altered here. Ask the platform team."


def test_a_key_that_the_request_does_not_name_has_no_pointer() -> None:
    asked = replace(request("topic=t", "-k"), pointers={})
    found = refusal(asked, "deny_removal: k")
    assert found is not None
    assert found.pointer is None


@pytest.mark.parametrize("rule", ["deny_keys: '*'", "allow_keys: none", "ranges: {'*': {max: 0}}", "deny_removal: '*'"])
def test_of_several_offending_keys_the_first_by_name_is_reported(rule: str) -> None:
    keys = [f"k{number}" for number in range(19, 9, -1)]
    changes = [f"-{key}" for key in keys] if rule.startswith("deny_removal") else [f"{key}=1" for key in keys]
    asked = request("topic=t", *changes)
    found = refusal(asked, rule)
    assert found is not None
    assert found.detail.startswith(("rule 'r0': k10 ", "rule 'r0': the value of k10 "))
    assert found.pointer == asked.pointers["k10"]


@pytest.mark.parametrize(("facet", "meant"), [("client-quotas", True), ("client-configs", False)])
def test_an_entity_of_two_facets_is_meant_in_one(facet: str, meant: bool) -> None:  # noqa: FBT001 - a column
    asked = request("user=a", "k=1", facet=facet)
    assert (refusal(asked, SHIELD % "{facets: client-quotas}") is not None) is meant


_KEYS = st.sampled_from(["a", "b", "c.d", "e_rate", "pw"])
_VALUES = st.sampled_from(["1", "7", "x", "1.0E7", None])


@given(changes=st.dictionaries(_KEYS, _VALUES, max_size=4), removed=st.frozensets(_KEYS))
def test_the_order_of_keys_does_not_matter(changes: dict[str, str | None], removed: frozenset[str]) -> None:
    checked = policies(
        "{deny_keys: c.*, ranges: {a: {max: 5}, e_rate: {max: 1000}, pw: {min: 5}}}",
        "{values: {'?': [1, x]}, deny_removal: [b, pw]}",
        "{allow_keys: ['?', e_rate]}",
    )
    answers: set[tuple[str, str | None] | None] = set()
    for items in permutations(changes.items()):
        pointers = {key: f"/{key}" for key, _ in items}
        asked = replace(request(), set=dict(items), removed=removed - set(changes), pointers=pointers)
        try:
            checked.check(asked)
            answers.add(None)
        except PolicyViolationError as error:
            answers.add((error.detail, error.pointer))
    assert len(answers) == 1


# ---------------------------------------------------------------- approvals


def asked(given: PolicyRequest, *rules: str) -> list[str]:
    """The names of the rules that ask for approvals."""
    return [each.rule for each in policies(*rules).requirements(given)]


QUOTAS = "{facets: client-quotas, except_principals: 'User:pipe*'}"
ALICE = request("user=alice", "producer_byte_rate=2", "-request_percentage")


@pytest.mark.parametrize(
    ("given", "approvals", "needed"),
    [
        (ALICE, "{count: 1}", True),
        (ALICE, "{count: 1, keys: producer_*}", True),
        (ALICE, "{count: 1, keys: request_percentage}", True),
        (ALICE, "{count: 1, keys: consumer_byte_rate}", False),
        (ALICE, "{count: 1, min_entities: 2}", False),
        (replace(ALICE, facet="client-configs"), "{count: 1}", False),
        (replace(ALICE, principal="User:pipeline"), "{count: 1}", False),
        (replace(ALICE, principal="User:pipeline", behalf_of="User:ci"), "{count: 1}", True),
    ],
)
def test_which_changes_need_approval(given: PolicyRequest, approvals: str, *, needed: bool) -> None:
    rule = f"{{match: {QUOTAS}, approvals: {approvals}}}"
    assert asked(given, rule) == (["r0"] if needed else [])
    assert refusal(given, rule) is None


@pytest.mark.parametrize(
    ("altered", "needed"),
    [
        ({("client-quotas", "user=alice")}, False),
        ({("client-quotas", "user=bob")}, False),
        ({("client-quotas", "user=bob"), ("client-quotas", "user=carol")}, True),
        ({("client-quotas", "user=bob"), ("client-configs", "user=carol")}, False),
        ({("client-quotas", "user=bob"), ("configs", "topic=t")}, False),
        ({("client-quotas", "user=alice"), ("client-quotas", "user=bob"), ("client-quotas", "ip=10.0.0.1")}, True),
    ],
)
def test_sizes_count_the_entities_that_the_rule_applies_to(altered: set[tuple[str, str]], *, needed: bool) -> None:
    given = replace(ALICE, altered=frozenset((facet, Entity.from_id(each)) for facet, each in altered))
    rule = f"{{match: {QUOTAS}, approvals: {{count: 1, min_entities: 3}}}}"
    assert asked(given, rule) == (["r0"] if needed else [])


@pytest.mark.parametrize(
    ("owners", "applies"),
    [
        ({}, False),
        ({"producer_byte_rate": "red"}, True),
        ({"producer_byte_rate": "red/apps"}, True),
        ({"producer_byte_rate": "blue"}, False),
        ({"consumer_byte_rate": "red"}, False),
        ({"request_percentage": "red"}, True),
        ({"producer_byte_rate": "blue", "request_percentage": "red"}, True),
    ],
)
def test_rules_about_owners_apply_to_changes_of_the_keys_that_they_have(
    owners: dict[str, str], *, applies: bool
) -> None:
    set_, removed = {"producer_byte_rate": "2.0"}, frozenset({"request_percentage"})
    given = replace(ALICE, set=set_, removed=removed, owners=owners)
    match = "{owners: [red, 'red/*']}"
    assert asked(given, f"{{match: {match}, approvals: {{count: 1}}}}") == (["r0"] if applies else [])
    assert (refusal(given, SHIELD % match) is not None) == applies
    # Taking a key over changes it, for rules about owners alone.
    taken = replace(given, set={}, removed=frozenset(), taken_over=removed.union(set_))
    assert asked(taken, f"{{match: {match}, approvals: {{count: 1}}}}", "{approvals: {count: 1}}") == (
        ["r0"] if applies else []
    )


@pytest.mark.parametrize(
    ("match", "asks"),
    [
        ("{owners: red}", True),
        ("{owners: red, facets: client-quotas, types: user}", True),
        ("{owners: red, facets: configs}", False),
        ("{owners: red, except_principals: 'User:ci'}", False),
        ("{types: user}", False),
    ],
)
def test_owners_are_read_only_if_a_rule_about_the_entity_asks_for_them(match: str, *, asks: bool) -> None:
    for rule in (SHIELD % match, f"{{match: {match}, approvals: {{count: 1}}}}"):
        found = policies(rule).asks_for_owners("client-quotas", Entity.from_id("user=a"), "User:ci", None)
        assert found == asks
    assert not Policies().asks_for_owners("client-quotas", Entity.from_id("user=a"), "User:ci", None)


def test_every_rule_that_matches_asks_for_its_own_approvals() -> None:
    rules = policies("{approvals: {count: 1}}", "{approvals: {count: 2, from: 'Group:x'}}", "{deny_keys: none}")
    assert rules.requirements(ALICE) == (Requirement("r0", 1), Requirement("r1", 2, Globs(["Group:x"])))
    assert Policies().requirements(ALICE) == ()


@pytest.mark.parametrize(
    ("rule", "measured"),
    [
        ("{approvals: {count: 1}}", False),
        ("{protected: true}", False),
        ("{approvals: {count: 1, min_entities: 2}}", True),
        ("{match: {types: topic}, approvals: {count: 1, min_entities: 2}}", False),
        ("{match: {except_principals: 'User:ci'}, approvals: {count: 1, min_entities: 2}}", False),
    ],
)
def test_sizes_are_needed_only_for_rules_that_depend_on_them(rule: str, *, measured: bool) -> None:
    assert policies(rule).measures("client-quotas", ALICE.entity, "User:ci", None) is measured
    assert not Policies().measures("client-quotas", ALICE.entity, "User:ci", None)
