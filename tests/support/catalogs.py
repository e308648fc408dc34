"""The catalogs that tests ask for."""

from __future__ import annotations

from typing import Final

from confplane.domain.definitions import catalog_of
from confplane.domain.releases import ON_ZOOKEEPER, newest

ZOOKEEPER: Final = catalog_of(ON_ZOOKEEPER)
"""The catalog of clusters on ZooKeeper."""
NEWEST: Final = catalog_of(newest())
"""The catalog of the newest release."""
