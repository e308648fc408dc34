"""Drift of a Kafka cluster from the values written through Confplane."""
