"""Grants: created, listed, found, replaced and removed."""
