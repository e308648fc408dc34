"""Passwords as Kafka's brokers store them, their fingerprints, subjects of certificates, and key files.

The only package that imports cryptography.
"""

from confplane.crypto.certificates import subject_of
from confplane.crypto.cipher import KafkaCipher, KafkaRotator
from confplane.crypto.fingerprints import ConfigFingerprinter
from confplane.crypto.keyring import BrokerSecrets, Keyring, KeyringError
from confplane.crypto.sealing import ConsoleKey, WebhookKey

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
