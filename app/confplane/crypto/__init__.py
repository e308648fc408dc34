"""Passwords as Kafka's brokers store them, their fingerprints, subjects of certificates, and key files.

The only package that imports cryptography.
"""

from confplane.crypto.cipher import KafkaCipher
from confplane.crypto.config_fingerprints import ConfigFingerprinter
from confplane.crypto.keyring import BrokerSecrets, Keyring, KeyringError
from confplane.crypto.rotation import KafkaRotator
from confplane.crypto.sealing import ConsoleKey, WebhookKey
from confplane.crypto.subjects import subject_of

__all__ = [
    "BrokerSecrets",
    "ConfigFingerprinter",
    "ConsoleKey",
    "KafkaCipher",
    "KafkaRotator",
    "Keyring",
    "KeyringError",
    "WebhookKey",
    "subject_of",
]
