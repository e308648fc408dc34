"""Definitions of configs as data, generated from Kafka's own classes, and our own sentences about them.

``confplane.domain.definitions`` reads both.
"""
