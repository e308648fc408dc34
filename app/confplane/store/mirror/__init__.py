"""The copy of the configs in memory: its load, its updates, and the journal of its changes."""
