"""The size of a page of any list."""

from __future__ import annotations

from typing import Final

PAGE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of rows after which a page of any list ends, full or not; a page always has a row."""
