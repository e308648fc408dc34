"""Configs of topics and brokers (KIP-226, KIP-339)."""
