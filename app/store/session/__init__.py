"""The connection to ZooKeeper: one session after another, on the event loop; who leads."""
