"""Temporary changes: their list, early ends, and pauses."""
