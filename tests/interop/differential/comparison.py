"""Compares two answers, and says of each difference whether it is meant."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.interop.differential import allowed, answers
from tests.interop.differential.allowed import CODES, STORED, Altered, Difference, flush_below_zero, poisoned, unsound
from tests.interop.differential.steps import Method
from tests.interop.differential.stored import config_of, emptied, same

if TYPE_CHECKING:
    from tests.interop.differential.steps import Body, Step, Tree


@dataclass(slots=True)
class Verdict:
    """The differences that a comparison met."""

    met: Counter[str] = field(default_factory=Counter)
    """Rows of the page that explain differences."""
    unexplained: list[str] = field(default_factory=list)
    """A line for each difference that none explains, ours last."""


def judge_alter(altered: list[Altered]) -> Verdict:
    """Compare what became of an alter."""
    verdict = Verdict()
    for each in altered:
        what = f"{each.path or each.part}"
        if each.theirs != each.ours:
            found = [rule for rule in CODES if (each.theirs, each.ours) in rule.codes and rule.applies(each)]
            _note(verdict, found, f"{what}: {each.theirs} | {each.ours}")
        elif each.path is not None and not each.repeated and not same(each.path, each.their_data, each.our_data):
            found = [rule for rule in STORED if rule.applies(each)]
            _note(verdict, found, f"{what}, before {each.before!r}: {each.their_data!r} | {each.our_data!r}")
        elif emptied(each.their_data, each.our_data) and each.before is not None:
            verdict.met[allowed.EMPTIED] += 1
    return verdict


def judge_notifications(altered: list[Altered], theirs: list[bytes], ours: list[bytes]) -> Verdict:
    """Compare what an alter announced: one notification for each change, the same to the byte."""
    verdict = Verdict()
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
            verdict.met[allowed.WITHOUT_EFFECT] += 1
        elif not unlike[payload]:
            verdict.unexplained.append(f"notified by Kafka only: {payload!r}")
    verdict.unexplained += [
        f"notified by Confplane only: {payload!r}"
        for payload in (Counter(ours) - Counter(theirs)).elements()
        if not unlike[payload]
    ]
    return verdict


def judge_describe(step: Step, theirs: Body, ours: Body, tree: Tree) -> Verdict:
    """Compare the answers to a describe of what is in a tree."""
    verdict = Verdict()
    if step.method is Method.DESCRIBE_QUOTAS:
        _quotas(verdict, step, theirs, ours, tree)
        return verdict
    pairs = zip(answers.parts(step), answers.configs(step, theirs), answers.configs(step, ours), strict=True)
    for part, (their_code, their_configs), (our_code, our_configs) in pairs:
        what = f"{part['resourceType']} {part['resourceName']!r}"
        if their_code != our_code:
            _describe_code(verdict, part, (their_code, our_code), tree)
        else:
            verdict.unexplained += [f"{what} {line}" for line in unequal(their_configs, our_configs)]
    return verdict


def _describe_code(verdict: Verdict, part: dict[str, Any], codes: tuple[int, int], tree: Tree) -> None:
    kind, name = part["resourceType"], part["resourceName"]
    theirs, ours = codes
    if kind == 4 and ((name not in {"", "0"} and (theirs, ours) == (42, 0)) or (name in {"00", "+0"} and ours == 42)):
        verdict.met[allowed.OTHER_BROKERS] += 1
    elif kind in {8, 16} and ours == 42:
        verdict.met[allowed.OTHER_RESOURCES] += 1
    elif kind == 2 and codes == (-1, 0) and b'"planted"' in (tree.get(f"topics/{name}") or b""):
        verdict.met[allowed.BAD_ON_TOPIC] += 1
    elif kind == 2 and codes == (-1, 0) and _is_flushed_by_broker(f"topics/{name}", tree):
        verdict.met[allowed.NEVER_FLUSHED] += 1
    else:
        verdict.unexplained.append(f"{kind} {name!r}: {theirs} | {ours}")


def _is_flushed_by_broker(path: str, tree: Tree) -> bool:
    return "flush.ms" not in (config_of(tree.get(path)) or {}) and flush_below_zero(tree)


def _quotas(verdict: Verdict, step: Step, theirs: Body, ours: Body, tree: Tree) -> None:
    their_code, their_entries = answers.quotas(theirs)
    our_code, our_entries = answers.quotas(ours)
    components = answers.parts(step)
    skipped = ours.get("skipped")
    if their_code == our_code:
        not_shown = [key for key, values in their_entries.items() if not all(map(math.isfinite, values.values()))]
        if skipped and not_shown and not our_entries.keys() & not_shown:
            verdict.met[allowed.NOT_FINITE] += 1
            their_entries = {key: values for key, values in their_entries.items() if key not in not_shown}
        elif skipped and their_code == 0:
            verdict.met[allowed.UNPARSABLE] += 1
        verdict.unexplained += unequal(their_entries, our_entries)
        return
    codes = (their_code, our_code)
    incomplete = any(
        item["matchType"] not in {0, 1, 2} or (item["matchType"] == 0 and item["match"] is None) for item in components
    )
    if incomplete and codes == (-1, 42):
        verdict.met[allowed.INCOMPLETE] += 1
    elif codes == (-1, 0) and not our_entries and _impossible(step):
        verdict.met[allowed.IMPOSSIBLE] += 1
    elif our_code == 42 and any(unsound(item["match"]) for item in components):
        verdict.met[allowed.UNSOUND] += 1
    elif codes == (-1, 0) and poisoned(tree):
        verdict.met[allowed.NO_NUMBER] += 1
    else:
        verdict.unexplained.append(f"{their_code} | {our_code}")


def _impossible(step: Step) -> bool:
    return any(item["matchType"] == 0 and item["match"] in {"", ".", ".."} for item in answers.parts(step))


def unequal(theirs: dict[Any, Any], ours: dict[Any, Any]) -> list[str]:
    """Say what differs between two maps, a line each."""
    return [
        f"{key}: {theirs.get(key)!r} | {ours.get(key)!r}"
        for key in {**theirs, **ours}
        if theirs.get(key) != ours.get(key)
    ]


def _note(verdict: Verdict, found: list[Difference], line: str) -> None:
    if found:
        verdict.met[found[0].row] += 1
    else:
        verdict.unexplained.append(line)


def _unchanged(each: Altered) -> bool:
    return same(each.path or "", each.before, each.our_data)


def _payload(path: str | None) -> bytes:
    return f'{{"version":2,"entity_path":"{path}"}}'.encode()
