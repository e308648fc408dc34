#!/bin/sh
# Runs rollups on a Spark cluster whose workers have Spark and Python, and no packages of ours: they unpack packages.zip,
# made by package.sh, which the driver uses unpacked. MASTER is the cluster, as in spark://spark:7077; the arguments are
# those of `confplane rollups`.
set -eu
PYTHONPATH="$PWD/packages"
PYSPARK_PYTHON="${PYSPARK_PYTHON:-python3}"
export PYTHONPATH PYSPARK_PYTHON
exec spark-submit --master "$MASTER" \
  --archives packages.zip#packages \
  --conf spark.executorEnv.PYTHONPATH=packages \
  --conf spark.driver.extraJavaOptions=-Dlog4j2.configurationFile=packages/confplane/rollups/log4j2.properties \
  --conf spark.ui.showConsoleProgress=false \
  ${SPARK_OPTIONS:-} \
  packages/confplane/rollups/__main__.py "$@"
