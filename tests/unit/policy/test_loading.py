"""Policies from settings: through real entry points of distributions on the path."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from confplane.domain.errors import PolicyViolationError
from confplane.policy import PolicySettingsError, load_policies
from confplane.settings import ClusterSettings
from tests.unit.policy.requests import install, request

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
from confplane.domain.errors import PolicyViolationError

class NoKey:
    name = "no-key"
    def __init__(self, options):
        self.key = options["key"]
    def check(self, request):
        if self.key in request.set:
            raise PolicyViolationError(f"no-key: not {self.key}", pointer=request.pointers.get(self.key))

def nameless(options):
    return object()

class Checkless:
    name = "checkless"
    def __init__(self, options): pass

class Waiting(NoKey):
    async def check(self, request): pass
"""


def settings(**fields: Any) -> ClusterSettings:
    return ClusterSettings.model_validate({"zookeeper": "zk:2181", **fields})


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with one distribution."""
    folder = tmp_path / "site"
    names = {name: f"confplane_test_plugins:{name}" for name in ("NoKey", "nameless", "Checkless", "Waiting", "Gone")}
    install(folder, "confplane_test_plugins", SOURCE, {**names, "absent": "confplane_test_absent:X"})
    monkeypatch.syspath_prepend(folder)
    return folder


def test_without_settings_there_is_nobody_to_ask() -> None:
    policies = load_policies("payments", settings())
    assert not policies
    assert policies.names == ()
    policies.check(request("topic=t", "k=1"))


@pytest.mark.usefixtures("plugins")
def test_a_plugin_is_found_by_its_entry_point_and_gets_its_options(caplog: pytest.LogCaptureFixture) -> None:
    wanted = [{"name": "NoKey", "options": {"key": key}} for key in ("a", "b")]
    with caplog.at_level(logging.INFO):
        policies = load_policies("payments", settings(policies=wanted))
    assert policies
    assert "cluster payments: policies no-key, no-key" in caplog.text
    policies.check(request("topic=t", "c=1"))
    for key in ("a", "b"):
        with pytest.raises(PolicyViolationError, match=f"no-key: not {key}") as caught:
            policies.check(request("topic=t", f"{key}=1"))
        assert caught.value.pointer == "/ops/0"


@pytest.mark.usefixtures("plugins")
def test_the_rules_are_asked_before_the_plugins(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{name: mine, deny_keys: [a, \N{GREEK SMALL LETTER BETA}]}]\n", encoding="utf-8")
    policies = load_policies(
        "payments", settings(policy_file=rules, policies=[{"name": "NoKey", "options": {"key": "a"}}])
    )
    assert policies.names == ("rules", "no-key")
    with pytest.raises(PolicyViolationError, match="rule 'mine': "):
        policies.check(request("topic=t", "a=1"))


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "nokey",
            "no installed package has a policy 'nokey'; there are: Checkless, Gone, NoKey, Waiting, absent, nameless",
        ),
        ("NoKey", "the policy 'NoKey' (confplane_test_plugins:NoKey) does not start: KeyError: 'key'"),
        ("nameless", "the policy 'nameless' (confplane_test_plugins:nameless) has no attribute 'name'"),
        ("Checkless", "the policy 'Checkless' (confplane_test_plugins:Checkless) has no method 'check'"),
        ("Gone", "the policy 'Gone' (confplane_test_plugins:Gone) does not start: AttributeError: "),
        ("absent", "the policy 'absent' (confplane_test_absent:X) does not start: ModuleNotFoundError: "),
    ],
)
def test_a_plugin_that_will_not_do_stops_the_start(name: str, said: str) -> None:
    with pytest.raises(PolicySettingsError) as caught:
        load_policies("payments", settings(policies=[{"name": name}]))
    (problem,) = caught.value.problems
    assert problem.startswith("clusters.payments.policies.0: ")
    assert said in problem


@pytest.mark.usefixtures("plugins")
def test_an_asynchronous_plugin_is_not_taken() -> None:
    with pytest.raises(PolicySettingsError, match="asynchronous"):
        load_policies("payments", settings(policies=[{"name": "Waiting", "options": {"key": "k"}}]))


def test_a_name_that_is_installed_twice_is_not_guessed(plugins: Path) -> None:
    install(plugins, "confplane_test_others", "X = None\n", {"NoKey": "confplane_test_others:X"})
    with pytest.raises(PolicySettingsError, match="2 policies are installed as 'NoKey': confplane_test_others:X, "):
        load_policies("payments", settings(policies=[{"name": "NoKey", "options": {"key": "k"}}]))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "can't be read: No such file or directory"),
        (b"\xff\xfe", "is not a text file"),
        (b"rules: 1\n", "rules.yaml:1: rules: Input should be a valid list"),
    ],
)
def test_every_problem_is_reported_with_its_setting(tmp_path: Path, content: bytes | None, said: str) -> None:
    rules = tmp_path / "rules.yaml"
    if content is not None:
        rules.write_bytes(content)
    with pytest.raises(PolicySettingsError) as caught:
        load_policies("payments", settings(policy_file=rules, policies=[{"name": "x"}, {"name": "y"}]))
    first, second, third = caught.value.problems
    assert first.startswith(f"clusters.payments.policy_file: {rules}")
    assert said in first
    assert second.startswith("clusters.payments.policies.0: no installed package has a policy 'x'; there are: none")
    assert third.startswith("clusters.payments.policies.1: ")
    assert str(caught.value).splitlines() == [first, second, third]
