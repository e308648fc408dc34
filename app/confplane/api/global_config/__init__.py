"""Configs that all brokers share (KIP-5)."""
