#!/bin/sh
# Makes .cache/emulate at the root of the repository: the emulator of GitHub, in the version that tests/emulate names, for the
# tests of sluice-git. Silent and quick when all is up to date.
#
# usage: tests/setup/emulate.sh
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
target=$root/.cache/emulate
packages=$root/tests/emulate

fail() {
    printf 'emulate: %s\n' "$*" >&2
    exit 1
}

made_of() { cat "$packages"/package*.json "$0" | sha256sum | cut -d' ' -f1; }
current() { [ "$(cat "$target/.stamp" 2>/dev/null)" = "$(made_of)" ]; }

! current || exit 0
for program in npm flock; do
    command -v "$program" >/dev/null 2>&1 || fail "$program is missing: run tests/setup/packages.sh"
done
mkdir -p "$root/.cache"
# One builder at a time; who waited finds it done.
exec 9>"$target.lock"
flock 9
! current || exit 0
new=$target.new
rm -rf "$new"
mkdir -p "$new"
cp "$packages/package.json" "$packages/package-lock.json" "$packages/.npmrc" "$new"
(cd "$new" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) >&2 ||
    fail "npm failed (above). Once the cause is gone, run this again."
made_of >"$new/.stamp"
rm -rf "$target"
mv "$new" "$target"
