"""Errors of Spark, for callers that do not know Spark."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Iterator


class SparkFailedError(Exception):
    """A task failed, or the cluster is away; the message is Spark's, without the stack traces."""


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raise Spark's errors in a block as :class:`SparkFailedError`."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise SparkFailedError(lines[0].strip() if lines else type(error).__name__) from error
