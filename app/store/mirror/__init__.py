"""The copy of the configs in memory: loaded, followed, and what changed in it."""
