"""Kafka 4 clusters (KRaft), accessed with Kafka's own protocol."""
