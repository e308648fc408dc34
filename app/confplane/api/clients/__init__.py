"""The common parts of client quotas and client configs."""
