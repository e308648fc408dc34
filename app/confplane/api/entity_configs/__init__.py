"""Entities of every type in one request (KIP-21)."""
