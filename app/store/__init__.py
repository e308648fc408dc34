"""ZooKeeper: znode codecs, session, conditional transactions, mirror. The only package that imports kazoo."""

from app.store.access import Access
from app.store.mirror import FacetIndex
from app.store.store import ZooKeeperStore

__all__ = ["Access", "FacetIndex", "ZooKeeperStore"]
