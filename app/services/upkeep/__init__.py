"""Upkeep: settling and sweeping in the background, and the changes that operators start by a command."""
