#!/bin/sh
# Makes /opt/confplane of a lock, in a stage of the Dockerfile: the requirements, the project, and the list of both.
set -eu
tools/bin/pip wheel --quiet --require-hashes --no-build-isolation --wheel-dir wheel -r "$1"
python3 -m venv --without-pip /opt/confplane
tools/bin/pip --python /opt/confplane install --quiet --no-deps --no-index wheel/*.whl
tools/bin/cyclonedx-py environment --output-reproducible --of JSON -o /opt/confplane/sbom.cdx.json /opt/confplane
# Names the files of this stage.
find /opt/confplane -name direct_url.json -delete
# The file system is read-only at run time. This form of bytecode has no times in it, so two builds are equal.
/opt/confplane/bin/python3 -m compileall -q --invalidation-mode unchecked-hash /opt/confplane/lib
