"""Client configs (KIP-649)."""
