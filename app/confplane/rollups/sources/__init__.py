"""Spark data sources: the trail and the registrations from Postgres, the znodes from ZooKeeper."""
