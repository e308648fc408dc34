"""Kafka's wire protocol: messages, connections, logins, record batches. Only the standard library is used."""
