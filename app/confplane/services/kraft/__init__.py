"""An observed Kafka cluster: its import, polls and metadata log (docs/architecture.md, "Observed clusters")."""
