"""Reverts: of changes of the trail, and of an entity to a moment."""
