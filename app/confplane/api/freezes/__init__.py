"""Freezing a cluster's configs, and thawing them."""
