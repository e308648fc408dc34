"""Application of client changes to a Kafka cluster: queues, deliveries, dry runs, and waits until they are applied."""
