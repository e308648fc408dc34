"""Temporary changes: their ends, by the leader and early."""
