#!/bin/sh
# Makes .venv and installs the locked requirements and this project into it; does nothing when nothing changed.
# It first checks what the machine must have: one line each, with the remedy where something is missing.
#
#   install.sh [--port PORT]     with a port, also checks that a server can listen on it
#
# Console scripts of .venv are never run: the kernel cuts their first line off where the checkout's path is long.
set -eu
cd "$(dirname "$0")/.."

port=
if [ "${1:-}" = --port ]; then
    port=$2
fi

python=.venv/bin/python
stamp=.venv/.installed       # what was installed, once it is whole
unfinished=.venv/.unfinished # there while an install is under way
failed=0
checks=

ok() { checks="$checks  ok    $1
"; }
fail() { checks="$checks  FAIL  $1
"; failed=1; }

version_of() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }

# Every candidate is run: a name on the PATH may be a pyenv shim with nothing behind it.
check_python() {
    base=
    seen=
    for name in python3.14 python3.13 python3.12 python3.11 python3; do
        command -v "$name" >/dev/null 2>&1 || continue
        if ! version=$(version_of "$name"); then
            seen="$seen $name does not run;"
            continue
        fi
        case $version in
            3.1[1-9].* | 3.[2-9][0-9].*) ;;
            *)
                seen="$seen $name is $version;"
                continue
                ;;
        esac
        if ! "$name" -c 'import ensurepip, venv' >/dev/null 2>&1; then
            seen="$seen $name ($version) lacks venv or ensurepip: install python${version%.*}-venv;"
            continue
        fi
        base=$name
        ok "Python $version ($name)"
        return 0
    done
    fail "Python: 3.11 or later with venv is needed.${seen:- None was found;} get one from your package manager or python.org."
}

java_major() { "$1" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | sed -n 1p; }

check_java() {
    seen=
    for java in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java; do
        [ -n "$java" ] && command -v "$java" >/dev/null 2>&1 || continue
        major=$(java_major "$java")
        if [ "${major:-0}" -ge 17 ]; then
            ok "Java $major ($(command -v "$java"))"
            return 0
        fi
        if [ -n "$major" ]; then
            seen="$seen $java is version $major;"
        else
            seen="$seen $java does not run;"
        fi
    done
    fail "Java: a runtime of version 17 or later is needed.${seen:- None was found;} install one (openjdk-17-jre-headless, temurin-21-jre, ...) or set JAVA_HOME."
}

# $1 directory, $2 megabytes needed, $3 remedy
check_disk() {
    free=$(df -Pk "$1" | awk 'NR == 2 { print int($4 / 1024) }')
    if [ "${free:-0}" -ge "$2" ]; then
        ok "Disk: $free MB free in $1"
    else
        fail "Disk: $free MB free in $1, about $2 MB are needed. $3"
    fi
}

check_port() {
    if "$1" -c '
import socket, sys
with socket.socket() as probe:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", int(sys.argv[1])))
' "$port" 2>/dev/null; then
        ok "Port $port is free"
    else
        fail "Port $port is taken or not a port. Choose another: make run PORT=$((port + 1))"
    fi
}

what() { { cat .ci/build.lock .ci/requirements.lock pyproject.toml; version_of "$python"; pwd; } | cksum; }

installed() { [ -f "$stamp" ] && [ ! -e "$unfinished" ] && version_of "$python" >/dev/null && [ "$(cat "$stamp")" = "$(what)" ]; }

check_java
if installed; then
    current=yes
    [ -z "$port" ] || check_port "$python"
else
    current=
    check_python
    if [ ! -d .venv ]; then
        check_disk . 3000 "Free some, or put the checkout elsewhere."
        check_disk "${TMPDIR:-/tmp}" 2000 "Free some, or set TMPDIR to a directory with more."
    fi
    [ -z "$port" ] || [ -z "$base" ] || check_port "$base"
fi
if [ -z "$current" ] || [ "$failed" = 1 ]; then
    printf 'Checking this machine\n%s' "$checks"
fi
[ "$failed" = 0 ] || exit 1
[ -z "$current" ] || exit 0

# What an interrupted install left can't be told from what is whole, so it is made anew; pip has kept its downloads.
if [ -e "$unfinished" ] || { [ -e .venv ] && ! version_of "$python" >/dev/null; }; then
    echo "Removing .venv, which is not whole"
    rm -rf .venv
fi
mkdir -p .venv
: >"$unfinished"
if ! [ -x "$python" ]; then
    echo "Making .venv with Python $(version_of "$base")"
    "$base" -m venv .venv
fi

pip() { "$python" -m pip --disable-pip-version-check --no-input "$@"; }

echo "Installing the build tools"
pip install --quiet --require-hashes --only-binary :all: -r .ci/build.lock
echo "Installing the requirements. One of them is large: pyspark, a download of about 450 MB, and a minute to unpack"
pip install --require-hashes --no-build-isolation -r .ci/requirements.lock
echo "Installing Confplane"
pip install --quiet --no-deps --no-build-isolation -e .
what >"$stamp"
rm "$unfinished"
echo "Installed in .venv"
