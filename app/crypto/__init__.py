"""Passwords as Kafka's brokers store them, and what may be told of them. The only place that imports cryptography."""

from app.crypto.cipher import KafkaCipher
from app.crypto.keyring import BrokerSecrets, Keyring, KeyringError
from app.crypto.redaction import ConfigRedactor
from app.crypto.rotation import KafkaRotator

__all__ = ["BrokerSecrets", "ConfigRedactor", "KafkaCipher", "KafkaRotator", "Keyring", "KeyringError"]
