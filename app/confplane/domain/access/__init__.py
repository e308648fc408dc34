"""Identities, grants, and the ranges of names that grants allow, in the terms of Kafka."""
