"""The connection to ZooKeeper: one session after another, on the event loop; and the leadership."""
