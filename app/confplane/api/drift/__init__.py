"""Drift of a Kafka cluster from what callers wrote here."""
