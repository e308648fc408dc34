"""Embedded ZooKeeper and Postgres for ``confplane dev`` and the tests: the real servers, from installed wheels."""
