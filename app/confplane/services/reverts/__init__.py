"""Reverts: entities' keys as they were before given changes, or at a time (docs/architecture.md, "Reverts")."""
