#!/bin/sh
# Makes .cache/webui at the root of the repository from tests/python/webui.txt: Open WebUI, unmodified, for make test-webui.
# Two gigabytes. Silent and instant when it is up to date.
#
# usage: tests/setup/webui.sh        (PYTHON=… picks the interpreter: 3.11 or 3.12)
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
venv=$root/.cache/webui
requirements=$root/tests/python/webui.txt

say() { printf 'webui: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

wanted=$(sha256sum "$requirements" | cut -d' ' -f1)
current() { [ "$(cat "$venv/.stamp" 2>/dev/null)" = "$wanted" ] && "$venv/bin/python" -c '' 2>/dev/null; }

! current || exit 0

command -v flock >/dev/null 2>&1 || fail "flock is missing: run tests/setup/packages.sh"
mkdir -p "$root/.cache"
# One builder at a time; who waited finds it done.
exec 9>"$root/.cache/webui.lock"
flock 9
! current || exit 0

supported() { "$1" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; }

if ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
    python=""
    for candidate in ${PYTHON:-python3 python3.11 python3.12}; do
        if supported "$candidate"; then
            python=$candidate
            break
        fi
    done
    [ -n "$python" ] || fail "Open WebUI needs Python 3.11 or 3.12 with venv, and there is none: install one, or set PYTHON"
    rm -rf "$venv"
    "$python" -m venv "$venv" || fail "cannot make .cache/webui: run tests/setup/packages.sh (python3-venv)"
fi

rm -f "$venv/.stamp"
say "installing tests/python/webui.txt (some minutes the first time)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --only-binary :all: \
    -r "$requirements" || fail "pip failed (above). Once the cause is gone, run this again: it goes on where it stopped."
printf '%s\n' "$wanted" >"$venv/.stamp"
say "done"
