"""Data sources that carry values to the workers inside their class, and so leave nothing behind on any disk.

Spark hands a data source nothing but options, which stand in plans, event logs and web pages, and a class, which it
keeps in memory and sends to the Python processes that plan and read. So a connection string travels in the class: as
that of Spark's own JDBC source does, within the serialized task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource


def bind_values(source: type[DataSource], **values: Any) -> type[DataSource]:
    """Return a data source that has values as attributes of its class, and a name of its own.

    Args:
        source: The data source; its attributes of these names are declared and have no value.
        **values: Attribute -> value. A pickle of the class includes them.
    """
    name = f"{source.name()}_{uuid4().hex}"
    # Pickles of a class that no module defines include its attributes.
    return type(source.__name__, (source,), {**values, "name": classmethod(lambda _: name)})


def register(spark: SparkSession, source: type[DataSource], **values: Any) -> str:
    """Register a data source that carries values, and return the name to read or write it by.

    Args:
        spark: The session, which keeps the values for as long as it lasts.
        source: As of :func:`bind_values`.
        **values: As of :func:`bind_values`.
    """
    made = bind_values(source, **values)
    spark.dataSource.register(made)
    return made.name()
