"""Use cases over ports: describe, alter, deliver, history."""
