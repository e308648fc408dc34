"""Cluster-wide rollups on Spark: sources, jobs, sinks. Only this package imports pyspark, pyarrow, ADBC or Altair."""
