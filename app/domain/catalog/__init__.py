"""Definitions of configs as data, generated from Kafka's own classes, and our own sentences on them.

``app.domain.definitions`` reads them.
"""
