"""Client quotas (KIP-546)."""
