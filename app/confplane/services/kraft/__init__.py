"""A Kafka cluster without ZooKeeper: observing it, and applying changes to it (docs/architecture.md)."""
