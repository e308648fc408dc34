"""What can go wrong with the embedded servers, told so that a person knows what to do next."""

from __future__ import annotations


class DevStackError(Exception):
    """An embedded server can't be started or kept running; the message names the remedy or shows the log's end."""
