"""Changes: decision, transaction and trail of every kind of change (docs/architecture.md, "One write")."""
