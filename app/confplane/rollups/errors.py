"""Errors of Spark, for callers that do not know Spark."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Iterator


_OURS: Final = re.compile(r"\s*confplane(\.\w+)+: (?P<message>.+)")
"""The last line of a Python stack trace that ends with an error of ours."""


class SparkFailedError(Exception):
    """A task failed, or the cluster is unavailable.

    The message is that of Spark without stack traces, or that of our error.
    """


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raise Spark's errors in a block as :class:`SparkFailedError`."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkFailedError(_reason(error)) from error


def _reason(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    ours = [found["message"] for line in lines if (found := _OURS.fullmatch(line))]
    return next(iter([*ours, *(line.strip() for line in lines)]), type(error).__name__)
