#!/bin/sh
# Looks the locked requirements up in PyPI's database of advisories. Fails for a known vulnerability, and for a
# requirement that could not be looked up.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=.venv/bin/python
[ -x "$python" ] || python=python3
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check install --quiet pip-audit
"$work/venv/bin/python" -m pip_audit --strict --disable-pip --require-hashes -r .ci/requirements.lock
