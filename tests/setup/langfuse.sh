#!/bin/sh
# Makes .cache/langfuse at the root of the repository from tests/python/langfuse.txt: packages that only the tests of
# traces put on the path of .cache/venv. Silent and instant when it is up to date.
#
# usage: tests/setup/langfuse.sh
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
directory=$root/.cache/langfuse
requirements=$root/tests/python/langfuse.txt

say() { printf 'langfuse: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

wanted=$(sha256sum "$requirements" | cut -d' ' -f1)
current() { [ "$(cat "$directory/.stamp" 2>/dev/null)" = "$wanted" ]; }

! current || exit 0

command -v flock >/dev/null 2>&1 || fail "flock is missing: run tests/setup/packages.sh"
"$root/tests/setup/venv.sh"
# One builder at a time; who waited finds it done.
exec 9>"$root/.cache/langfuse.lock"
flock 9
! current || exit 0

rm -rf "$directory"
say "installing tests/python/langfuse.txt"
"$root/.cache/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
    --target "$directory" -r "$requirements" || fail "pip failed (above); once the cause is gone, run this again"
printf '%s\n' "$wanted" >"$directory/.stamp"
say "done"
