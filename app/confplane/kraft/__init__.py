"""Kafka 4 clusters (KRaft), spoken to in Kafka's own protocol."""
