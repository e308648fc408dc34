"""Observation of a Kafka cluster: its checks, polls, and when each entity type is due."""
