"""An observed Kafka cluster: its import, looks at it, its log (docs/architecture.md, "Observed clusters")."""
