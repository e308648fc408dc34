"""ZooKeeper: znode codecs, session, conditional transactions, mirror. The only package that imports kazoo."""

from confplane.store.mirror.nodes import FacetIndex
from confplane.store.session.access import ZooKeeperAccess
from confplane.store.session.tls import ZooKeeperTls
from confplane.store.store import ZooKeeperStore
from confplane.store.tree_copy import ZooKeeperTreeCopy

__all__ = ["FacetIndex", "ZooKeeperAccess", "ZooKeeperStore", "ZooKeeperTls", "ZooKeeperTreeCopy"]
