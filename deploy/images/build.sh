#!/bin/sh
# Builds the images confplane and confplane-rollups, with docker, or with buildah, which needs no daemon.
#
#   deploy/images/build.sh [service|rollups ...]
#
# Variables:
#   BASE             the base image; python:3.13-slim by default
#   IMAGE_BUILDER    docker or buildah; by default docker if its daemon answers
#   IMAGE_TAG        by default the version of the project
#   BUILDAH_OPTIONS  global options of buildah, for example --storage-driver vfs
#
# The settings of pip on this machine (index, certificates) apply during the build, and are not part of the images.
set -eu
cd "$(dirname "$0")/../.."
base=${BASE:-python:3.13-slim}
tag=${IMAGE_TAG:-$(sed -n 's/^__version__ = "\(.*\)"/\1/p' app/confplane/__init__.py)}
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
builder=${IMAGE_BUILDER:-}
if [ -z "$builder" ]; then
    builder=buildah
    if docker info >/dev/null 2>&1; then builder=docker; fi
fi
command -v "$builder" >/dev/null || {
    echo "Neither docker nor buildah is available. Install one of them, for example the package buildah." >&2
    exit 2
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ignore=deploy/images/Dockerfile.dockerignore
set -- "${@:-service rollups}"

# pip's own names: PIP_INDEX_URL is `index-url`.
pip_settings() {
    echo '[global]'
    env | sed -n 's/^PIP_\(INDEX_URL\|EXTRA_INDEX_URL\|DEFAULT_TIMEOUT\|PROXY\|TRUSTED_HOST\)=/\1=/p' |
        while IFS='=' read -r name value; do
            echo "$(echo "$name" | tr 'A-Z_' 'a-z-') = $value"
        done
    [ ! -s "$work/ca.crt" ] || echo 'cert = /run/build/ca.crt'
}

for name in $*; do
    image=confplane
    [ "$name" = service ] || image=confplane-$name
    label="org.opencontainers.image.revision=$revision"
    version="org.opencontainers.image.version=$tag"
    if [ "$builder" = docker ]; then
        DOCKER_BUILDKIT=1 docker build -f deploy/images/Dockerfile --target "$name" --build-arg "BASE=$base" \
            --label "$label" --label "$version" -t "$image:$tag" .
    else
        : >"$work/ca.crt"
        [ -z "${PIP_CERT:-}" ] || cat "$PIP_CERT" >"$work/ca.crt"
        pip_settings >"$work/pip.conf"
        # shellcheck disable=SC2086 - a list of options
        buildah ${BUILDAH_OPTIONS:-} build --format docker --isolation chroot --layers=false -f deploy/images/Dockerfile --ignorefile "$ignore" \
            --target "$name" --build-arg "BASE=$base" --label "$label" --label "$version" \
            --volume "$work:/run/build:ro" --volume "$work/pip.conf:/etc/pip.conf:ro" -t "$image:$tag" .
    fi
    echo "Built $image:$tag"
done
