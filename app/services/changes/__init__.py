"""Changes: how what is decided is written, once, whatever kind of change it is (docs/architecture.md, "One write")."""
