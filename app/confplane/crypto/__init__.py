"""Passwords as Kafka's brokers store them, their fingerprints, and subjects of certificates.

The only package that imports cryptography.
"""

from app.crypto.cipher import KafkaCipher
from app.crypto.config_fingerprints import ConfigFingerprinter
from app.crypto.keyring import BrokerSecrets, Keyring, KeyringError
from app.crypto.rotation import KafkaRotator
from app.crypto.subjects import subject_of

__all__ = [
    "BrokerSecrets",
    "ConfigFingerprinter",
    "KafkaCipher",
    "KafkaRotator",
    "Keyring",
    "KeyringError",
    "subject_of",
]
