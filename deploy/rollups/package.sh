#!/bin/sh
# Makes packages.zip: all that a worker of a Spark cluster needs besides Spark and Python. Run it on a machine with the
# workers' operating system and version of Python, in an empty directory.
set -eu
python="${PYSPARK_PYTHON:-python3}"
"$python" -m pip install --quiet --target packages "${1:-confplane[spark]}"
# The cluster has its own. Of another version it would be in the way.
rm -rf packages/pyspark packages/pyspark-*
(cd packages && "$python" -m zipfile -c ../packages.zip .)
