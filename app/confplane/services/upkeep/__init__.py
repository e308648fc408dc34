"""Upkeep: settling and sweeping in the background, and changes that operators start by a command."""
