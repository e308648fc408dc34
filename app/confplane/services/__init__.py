"""Use cases over ports: describe, alter, settle, record."""
