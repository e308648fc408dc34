"""Reverts: entities' keys as they were before given changes, or at a moment (docs/architecture.md, "Reverts")."""
