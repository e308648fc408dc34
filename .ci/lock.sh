#!/bin/sh
# Writes the locks from pyproject.toml, .ci/build.in and deploy/images/sbom.in: every version with its hashes, for every
# platform and every Python from 3.11 (one lock from 3.10, on which the base package runs), and no address of where they
# come from. Versions locked before are kept where they still fit.
#
#   lock.sh [--upgrade]
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=.venv/bin/python
[ -x "$python" ] || python=python3
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check install --quiet uv

compile() {
    oldest=$1
    shift
    "$work/venv/bin/python" -m uv pip compile --quiet --universal --python-version "$oldest" --generate-hashes \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$@"
}

# The project's own requirements first; what builds it must agree with them.
compile 3.11 "$@" --extra dev-stack --extra spark --extra test pyproject.toml -o .ci/requirements.lock
compile 3.11 "$@" --constraint .ci/requirements.lock .ci/build.in -o .ci/build.lock
compile 3.11 "$@" --constraint .ci/requirements.lock --extra server --extra otel pyproject.toml -o deploy/images/service.lock
compile 3.11 "$@" --constraint .ci/requirements.lock --extra spark pyproject.toml -o deploy/images/rollups.lock
compile 3.11 "$@" --constraint .ci/requirements.lock deploy/images/sbom.in -o deploy/images/sbom.lock
compile 3.10 "$@" pyproject.toml .ci/python310.in -o .ci/python310.lock
echo "Locked $(grep -c '==' .ci/requirements.lock) requirements and $(grep -c '==' .ci/build.lock) build tools"
