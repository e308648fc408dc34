"""Kafka clusters without ZooKeeper: observed, and brought to what clients wrote (docs/architecture.md).

A call that needs a cluster or a store raises ``UnavailableError`` while it is unavailable, or if the mirror was never
loaded. Deadlines are on the clock of ``time.monotonic()``.
"""
