"""A directory for the path of Spark's Python processes; its content runs there and nowhere else."""
