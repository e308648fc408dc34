"""ZooKeeper: znode codecs, session, conditional transactions, mirror. The only package that imports kazoo."""

from app.store.mirror.nodes import FacetIndex
from app.store.session.access import Access
from app.store.session.tls import ZooKeeperTls
from app.store.store import ZooKeeperStore

__all__ = ["Access", "FacetIndex", "ZooKeeperStore", "ZooKeeperTls"]
