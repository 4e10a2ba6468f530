#!/bin/sh
# Makes .cache/venv at the root of the repository from tests/python/requirements.txt: the real LiteLLM and the SDKs.
# Silent and instant when it is up to date. Interrupted, it goes on where it was: the stamp is written last.
#
# usage: tests/setup/venv.sh        (PYTHON=… picks the interpreter, 3.11 or newer)
#
# Call what is inside as `.cache/venv/bin/python -m …`: the scripts beside it hold an absolute path.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
venv=$root/.cache/venv
requirements=$root/tests/python/requirements.txt

say() { printf 'venv: %s\n' "$*" >&2; }

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
exec 9>"$root/.cache/venv.lock"
flock 9
! current || exit 0

supported() { "$1" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

if ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
    python=""
    for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13}; do
        if supported "$candidate"; then
            python=$candidate
            break
        fi
    done
    [ -n "$python" ] || fail "no Python >= 3.11 with venv found: run tests/setup/packages.sh, or set PYTHON"
    say "making .cache/venv with $("$python" --version)"
    rm -rf "$venv"
    "$python" -m venv "$venv" || fail "cannot make it: run tests/setup/packages.sh (python3-venv)"
fi

rm -f "$venv/.stamp"
say "installing tests/python/requirements.txt (a minute or two the first time)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -r "$requirements" ||
    fail "pip failed (above). Once the cause is gone, run this again: it goes on where it stopped."
"$venv/bin/python" -m pip check --disable-pip-version-check >/dev/null ||
    fail "tests/python/requirements.txt does not fit together: .cache/venv/bin/python -m pip check"
printf '%s\n' "$wanted" >"$venv/.stamp"
say "done"
