"""The history in a lake: trail, registrations and znodes as Parquet by day, and readings of them for the jobs."""
