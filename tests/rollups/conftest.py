"""One Spark session for all tests of the rollups: starting one takes seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from confplane.rollups.java_settings import SETTINGS
from confplane.rollups.session import session
from tests.support.sampling import FULL_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two cores, and with the settings for small clusters. Never stop it in a test.

    Tests of full size, the commands, and the tests on a cluster of their own run with the settings as shipped.
    """
    directory = tmp_path_factory.mktemp("spark")
    is_long = pytestconfig.stash[FULL_SIZE]
    spark = session(
        "local[2]",
        name="tests",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.local.dir": str(directory / "scratch"),
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={directory}",
            **({"spark.driver.memory": "3g"} if is_long else {"spark.driver.memory": "1g", **SETTINGS}),
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


@pytest.fixture(autouse=True)
def _cache(request: pytest.FixtureRequest) -> Iterator[None]:
    """Jobs keep in Spark's cache what they use several times; whoever runs them clears it.

    A command that takes the session sets it up for itself.
    """
    if "spark" not in request.fixturenames:
        yield
        return
    spark = request.getfixturevalue("spark")
    before = {key: spark.conf.get(key) for key in SETTINGS}
    yield
    spark.catalog.clearCache()
    for key, value in before.items():
        spark.conf.set(key, value)


@pytest.fixture
def two_parts(spark: SparkSession) -> None:
    """Shuffles of two parts, as larger clusters have several: Spark runs a query in order once more, for its keys."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")


@pytest.fixture
def few_rows(spark: SparkSession) -> None:
    """The settings for few rows also among tests of full size, where those that take many steps have few rows each."""
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
