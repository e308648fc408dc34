"""Change requests: proposals, reviews and applications."""
