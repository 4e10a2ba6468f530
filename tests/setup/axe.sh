#!/bin/sh
# Makes .cache/axe/axe.min.js: the checks for accessibility that the tests of the console run in the browser. It is not
# shipped. Silent and instant when it is there.
#
# usage: tests/setup/axe.sh
set -eu

version=4.11.0
# SHA-512 of the package, as its registry states it.
sum=8a561a9c453cbf1c417b1a4977c716338125490ab841cb422ca8a1d1349f8c87c24137b21ffeb356b98825f2cfaca4ca2516e21be71f9d96d02230252661758d

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
target=$root/.cache/axe
[ "$(cat "$target/.stamp" 2>/dev/null)" != "$version $sum" ] || exit 0
fail() {
    printf 'axe: %s\n' "$*" >&2
    exit 1
}
command -v npm >/dev/null 2>&1 || fail "there is no npm here: tests/setup/packages.sh installs it"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
archive=$(cd "$work" && npm pack --silent "axe-core@$version") || fail "npm pack axe-core@$version failed; is there a network?"
echo "$sum  $work/$archive" | sha512sum --check --quiet --strict || fail "axe-core@$version is not the one that is known here"
tar -xzf "$work/$archive" -C "$work"
mkdir -p "$target"
cp "$work/package/axe.min.js" "$work/package/LICENSE" "$target"
echo "$version $sum" >"$target/.stamp"
