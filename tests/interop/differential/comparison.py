"""Compares two answers, and says of each difference whether it is meant."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.interop.differential import allowed, answers
from tests.interop.differential.allowed import CODES, STORED, AlterPair, Difference, flush_below_zero, poisoned, unsound
from tests.interop.differential.steps import Method
from tests.interop.differential.stored import config_of, emptied, same

if TYPE_CHECKING:
    from tests.interop.differential.steps import Body, Step, Tree


@dataclass(slots=True)
class Comparison:
    """The differences that a comparison met."""

    met: Counter[str] = field(default_factory=Counter)
    """Rows of the page that explain differences."""
    unexplained: list[str] = field(default_factory=list)
    """A line for each difference that none explains, ours last."""


def compare_alter(altered: list[AlterPair]) -> Comparison:
    """Compare what became of an alter."""
    comparison = Comparison()
    for each in altered:
        what = f"{each.path or each.part}"
        if each.theirs != each.ours:
            found = [rule for rule in CODES if (each.theirs, each.ours) in rule.codes and rule.applies(each)]
            _note(comparison, found, f"{what}: {each.theirs} | {each.ours}")
        elif each.path is not None and not each.repeated and not same(each.path, each.their_data, each.our_data):
            found = [rule for rule in STORED if rule.applies(each)]
            _note(comparison, found, f"{what}, before {each.before!r}: {each.their_data!r} | {each.our_data!r}")
        elif emptied(each.their_data, each.our_data) and each.before is not None:
            comparison.met[allowed.EMPTIED] += 1
    return comparison


def compare_notifications(altered: list[AlterPair], theirs: list[bytes], ours: list[bytes]) -> Comparison:
    """Compare what an alter announced: one notification for each change, the same to the byte."""
    comparison = Comparison()
    unlike = Counter(
        _payload(each.path) for each in altered if (each.theirs != each.ours or each.repeated) and each.path is not None
    )
    without_effect = Counter(
        _payload(each.path)
        for each in altered
        if each.theirs == each.ours == 0 and each.path is not None and _unchanged(each)
    )
    for payload in (Counter(theirs) - Counter(ours)).elements():
        if without_effect[payload]:
            without_effect[payload] -= 1
            comparison.met[allowed.WITHOUT_EFFECT] += 1
        elif not unlike[payload]:
            comparison.unexplained.append(f"notified by Kafka only: {payload!r}")
    comparison.unexplained += [
        f"notified by Confplane only: {payload!r}"
        for payload in (Counter(ours) - Counter(theirs)).elements()
        if not unlike[payload]
    ]
    return comparison


def compare_describe(step: Step, theirs: Body, ours: Body, tree: Tree) -> Comparison:
    """Compare the answers to a describe of what is in a tree."""
    comparison = Comparison()
    if step.method is Method.DESCRIBE_QUOTAS:
        _quotas(comparison, step, theirs, ours, tree)
        return comparison
    pairs = zip(answers.parts(step), answers.configs(step, theirs), answers.our_configs(step, ours), strict=True)
    for part, (their_code, their_configs), (our_code, our_configs) in pairs:
        what = f"{part['resourceType']} {part['resourceName']!r}"
        if their_code != our_code:
            _describe_code(comparison, part, (their_code, our_code), tree)
        else:
            comparison.unexplained += [f"{what} {line}" for line in unequal(their_configs, our_configs)]
    return comparison


def _describe_code(comparison: Comparison, part: dict[str, Any], codes: tuple[int, int], tree: Tree) -> None:
    kind, name = part["resourceType"], part["resourceName"]
    theirs, ours = codes
    if kind == 4 and ((name not in {"", "0"} and (theirs, ours) == (42, 0)) or (name in {"00", "+0"} and ours == 42)):
        comparison.met[allowed.OTHER_BROKERS] += 1
    elif kind in {8, 16} and ours == 42:
        comparison.met[allowed.OTHER_RESOURCES] += 1
    elif kind == 2 and codes == (-1, 0) and b'"planted"' in (tree.get(f"topics/{name}") or b""):
        comparison.met[allowed.BAD_ON_TOPIC] += 1
    elif kind == 2 and codes == (-1, 0) and _is_flushed_by_broker(f"topics/{name}", tree):
        comparison.met[allowed.NEVER_FLUSHED] += 1
    else:
        comparison.unexplained.append(f"{kind} {name!r}: {theirs} | {ours}")


def _is_flushed_by_broker(path: str, tree: Tree) -> bool:
    return "flush.ms" not in (config_of(tree.get(path)) or {}) and flush_below_zero(tree)


def _quotas(comparison: Comparison, step: Step, theirs: Body, ours: Body, tree: Tree) -> None:
    their_code, their_entries = answers.quotas(theirs)
    our_code, our_entries = answers.quotas(ours)
    components = answers.parts(step)
    skipped = ours.get("skipped")
    if their_code == our_code:
        not_shown = [key for key, values in their_entries.items() if not all(map(math.isfinite, values.values()))]
        if skipped and not_shown and not our_entries.keys() & not_shown:
            comparison.met[allowed.NOT_FINITE] += 1
            their_entries = {key: values for key, values in their_entries.items() if key not in not_shown}
        elif skipped and their_code == 0:
            comparison.met[allowed.UNPARSABLE] += 1
        comparison.unexplained += unequal(their_entries, our_entries)
        return
    codes = (their_code, our_code)
    incomplete = any(
        item["matchType"] not in {0, 1, 2} or (item["matchType"] == 0 and item["match"] is None) for item in components
    )
    if incomplete and codes == (-1, 42):
        comparison.met[allowed.INCOMPLETE] += 1
    elif codes == (-1, 0) and not our_entries and _impossible(step):
        comparison.met[allowed.IMPOSSIBLE] += 1
    elif our_code == 42 and any(unsound(item["match"]) for item in components):
        comparison.met[allowed.UNSOUND] += 1
    elif codes == (-1, 0) and poisoned(tree):
        comparison.met[allowed.NO_NUMBER] += 1
    else:
        comparison.unexplained.append(f"{their_code} | {our_code}")


def _impossible(step: Step) -> bool:
    return any(item["matchType"] == 0 and item["match"] in {"", ".", ".."} for item in answers.parts(step))


def unequal(theirs: dict[Any, Any], ours: dict[Any, Any]) -> list[str]:
    """Say what differs between two maps, a line each."""
    return [
        f"{key}: {theirs.get(key)!r} | {ours.get(key)!r}"
        for key in {**theirs, **ours}
        if theirs.get(key) != ours.get(key)
    ]


def _note(comparison: Comparison, found: list[Difference], line: str) -> None:
    if found:
        comparison.met[found[0].row] += 1
    else:
        comparison.unexplained.append(line)


def _unchanged(each: AlterPair) -> bool:
    return same(each.path or "", each.before, each.our_data)


def _payload(path: str | None) -> bytes:
    return f'{{"version":2,"entity_path":"{path}"}}'.encode()
