"""Alter policies from settings: the built-in rules of a YAML file, and plug-ins of installed distributions."""

from confplane.policy.document import PolicySettingsError, parse_rules
from confplane.policy.loading import GROUP, load_policies

__all__ = ["GROUP", "PolicySettingsError", "load_policies", "parse_rules"]
