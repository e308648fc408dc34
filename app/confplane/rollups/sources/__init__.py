"""Spark data sources: the trail and the registrations out of Postgres, the znodes out of ZooKeeper."""
