"""Config definitions (KIP-21): JSON, and a page to read."""
