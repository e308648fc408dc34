"""Completions of lines in ``confplane shell``."""

from __future__ import annotations

import pytest

from confplane.cli.remote.configs.shell import Completion

KEYS = {"topic": ["cleanup.policy", "retention.bytes", "retention.ms"], "user": ["acks", "producer_byte_rate"]}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", ["help ", "exit "]),
        ("ex", ["exit "]),
        ("--desc", ["--describe ", "--describe-config "]),
        ("--describe --entity-type top", ["topics "]),
        ("--describe --entity-type ", ["topics ", "groups "]),
        ("--describe --topic ", []),
        ("--alter --topic a --add-config ret", ["retention.bytes=", "retention.ms="]),
        ("--alter --topic a --add-config a=1,clean", ["cleanup.policy="]),
        ("--alter --topic a --add-config retention.ms=", []),
        ("--alter --entity-type users --entity-name a --delete-config acks,prod", ["producer_byte_rate"]),
        ("--alter --entity-type topic --entity-name a --deleted-config c", ["cleanup.policy"]),
        ("--alter --client b --user-defaults --added-config a", ["acks="]),
        ("--alter --topic a --add-config b=1 --fo", ["--force "]),
        ("--bootstrap", []),
    ],
)
def test_a_word_is_completed_by_the_words_before(line: str, found: list[str]) -> None:
    begin = max(line.rfind(mark) for mark in " ,=") + 1
    completed = Completion(lambda kind: KEYS[kind], ("help", "exit")).candidates(line, begin, len(line))
    assert [each for each in completed if each in found] == found
    assert len(found) == len(completed) or line.endswith("--entity-type ")


def test_each_kind_of_keys_is_asked_for_once() -> None:
    asked = []

    def keys(kind: str) -> list[str]:
        asked.append(kind)
        return []

    completion = Completion(keys, ())
    for kind in ("topic", "broker", "topic"):
        line = f"--alter --{kind} 1 --add-config "
        assert completion.candidates(line, len(line), len(line)) == []
    assert asked == ["topic", "broker"]
