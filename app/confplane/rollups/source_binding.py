"""Binds secret values to the class of a Spark data source, so that they are never written to disk.

Spark passes a data source its options and its class. Options appear in plans, event logs and web pages. The class stays
in memory and is sent to the Python processes that plan and read. So a connection string is an attribute of the class,
and part of the serialized task, as with Spark's own JDBC source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource


def bind_values(source: type[DataSource], **values: Any) -> type[DataSource]:
    """Return a subclass of a data source with values as class attributes and a unique name.

    Args:
        source: The data source; its attributes of these names are declared and have no value.
        **values: Attribute -> value. A pickle of the class includes them.
    """
    name = f"{source.name()}_{uuid4().hex}"
    # Pickles of a class that no module defines include its attributes.
    return type(source.__name__, (source,), {**values, "name": classmethod(lambda _: name)})


def register(spark: SparkSession, source: type[DataSource], **values: Any) -> str:
    """Register a data source with bound values, and return the name to read or write it by.

    Args:
        spark: The session, which keeps the values for as long as it lasts.
        source: As of :func:`bind_values`.
        **values: As of :func:`bind_values`.
    """
    made = bind_values(source, **values)
    spark.dataSource.register(made)
    return made.name()
