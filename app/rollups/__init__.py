"""Cluster-wide rollups on Spark: sources, jobs, sinks. What imports pyspark, pyarrow, ADBC or Altair is here only."""
