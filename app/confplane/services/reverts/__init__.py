"""Reverts: entities' keys as they were before given changes, or at a time (docs/trail-design.md, "Reverts")."""
