"""A directory for the path of Spark's Python processes; what is in it runs there and nowhere else."""
