"""Errors of the embedded servers, with the next step for a person."""

from __future__ import annotations


class DevStackError(Exception):
    """An embedded server can't be started or kept running; the message names the remedy or shows the end of the log."""
