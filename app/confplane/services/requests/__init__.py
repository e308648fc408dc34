"""Change requests: proposed, reviewed and applied."""
