"""Alter policies from settings: the built-in rules of a YAML file, and plug-ins of installed distributions.

Plug-ins import :class:`Policy`, :class:`PolicyRequest` and :class:`PolicyViolationError` from here (docs/policies.md).
"""

from confplane.domain.errors import PolicyViolationError
from confplane.domain.policies import Policy
from confplane.domain.policy_rules import PolicyRequest
from confplane.policy.document import PolicySettingsError, parse_policy
from confplane.policy.loading import GROUP, load_policies, read_policy

__all__ = [
    "GROUP",
    "Policy",
    "PolicyRequest",
    "PolicySettingsError",
    "PolicyViolationError",
    "load_policies",
    "parse_policy",
    "read_policy",
]
