"""The history in a lake: trail, registrations and znodes as Parquet by day, and readings of this data for the jobs."""
