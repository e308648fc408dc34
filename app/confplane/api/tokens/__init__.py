"""API tokens: created, listed, found, rotated and revoked."""
