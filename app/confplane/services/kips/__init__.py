"""Configs of topics and brokers as Kafka's own requests alter them: KIP-21 and KIP-5."""
