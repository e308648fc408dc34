"""Finds and starts the policies that a cluster's settings name."""

from __future__ import annotations

import inspect
import logging
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final

from confplane.domain.policies import Policies
from confplane.domain.policy_rules import RulePolicy
from confplane.policy.document import PolicySettingsError, parse_policy

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.domain.policies import Policy
    from confplane.domain.policy_rules import PolicyDocument
    from confplane.settings import ClusterSettings, PolicySettings

GROUP: Final = "confplane.policies"
"""The entry point group of plug-ins."""

_log = logging.getLogger(__name__)


def load_policies(cluster: str, settings: ClusterSettings) -> Policies:
    """Build a cluster's policies: the rules of ``policy_file`` first, then the plug-ins in the order of ``policies``.

    Plug-ins are read once, here. The service reads the file again when it changes.

    Args:
        cluster: The cluster's name, for messages.
        settings: Its settings.

    Raises:
        PolicySettingsError: The file is not valid, or a plug-in is not installed or does not start; the error has every
            problem.
    """
    problems: list[str] = []
    policies: list[Policy] = []
    if settings.policy_file is not None:
        try:
            policies.append(RulePolicy("rules", read_policy(settings.policy_file)))
        except PolicySettingsError as error:
            problems += [f"clusters.{cluster}.policy_file: {problem}" for problem in error.problems]
    for index, wanted in enumerate(settings.policies):
        try:
            policies.append(_plugin(wanted))
        except PolicySettingsError as error:
            problems += [f"clusters.{cluster}.policies.{index}: {problem}" for problem in error.problems]
    if problems:
        raise PolicySettingsError(*problems)
    if policies:
        _log.info("cluster %s: policies %s", cluster, ", ".join(policy.name for policy in policies))
    return Policies(policies)


def read_policy(path: Path) -> PolicyDocument:
    """Read a policy file.

    Raises:
        PolicySettingsError: It can't be read, or is not valid; the error has every problem.
    """
    return parse_policy(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Read a file.

    Raises:
        PolicySettingsError: It can't be read, or is not a text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PolicySettingsError(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PolicySettingsError(f"{path} is not a text file in UTF-8") from None


def _plugin(wanted: PolicySettings) -> Policy:
    entry_point = _find(wanted.name)
    try:
        policy = entry_point.load()(dict(wanted.options))
    except Exception as error:
        raise PolicySettingsError(
            f"the policy {wanted.name!r} ({entry_point.value}) does not start: {type(error).__name__}: {error}"
        ) from error
    problem = _unfit(policy)
    if problem is not None:
        raise PolicySettingsError(f"the policy {wanted.name!r} ({entry_point.value}) {problem}")
    checked: Policy = policy
    return checked


def _find(name: str) -> EntryPoint:
    installed = entry_points(group=GROUP)
    # One distribution may appear in several directories of the path.
    found = {entry_point.value: entry_point for entry_point in installed if entry_point.name == name}
    if not found:
        known = ", ".join(sorted(installed.names)) or "none"
        raise PolicySettingsError(
            f"no installed package has a policy {name!r}; there are: {known} (entry point group {GROUP})"
        )
    if len(found) > 1:
        raise PolicySettingsError(f"{len(found)} policies are installed as {name!r}: {', '.join(sorted(found))}")
    return next(iter(found.values()))


def _unfit(policy: object) -> str | None:
    """Return the reason why an object is not a policy; None for a valid policy."""
    if not isinstance(getattr(policy, "name", None), str):
        return "has no attribute 'name' that is a text"
    check = getattr(policy, "check", None)
    if not callable(check):
        return "has no method 'check'"
    if inspect.iscoroutinefunction(check):
        return "has an asynchronous 'check'; policies are asked without waiting"
    return None
