"""The service itself, and the page of its API."""
