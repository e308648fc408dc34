"""The stores of a run's rows: Postgres, which the API answers from, and Parquet."""
