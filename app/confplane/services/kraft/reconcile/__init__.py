"""Consequences of the differences: changes of the tree, values that are put back, and drift."""
