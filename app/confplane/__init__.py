"""Confplane: an HTTP control plane for the dynamic configuration of Apache Kafka clusters."""

__version__ = "0.1.0"
