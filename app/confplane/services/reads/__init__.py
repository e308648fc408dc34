"""Reads of configs: declared and effective ones, exports, and the results of rollups."""
