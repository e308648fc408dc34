"""Results of rollups."""
