"""Principals, and their authentication."""
