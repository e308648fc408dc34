"""Where a run's rows go: Postgres, which the API answers from, and Parquet."""
