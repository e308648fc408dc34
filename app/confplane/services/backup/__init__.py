"""Archives of both stores: backups, their verification, and restores."""
