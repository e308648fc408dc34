"""The audit trail: changes, from which value to which, and why."""
