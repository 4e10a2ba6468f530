#!/usr/bin/env bash
# Fetches the libraries of the console with `npm pack`, in the versions of vendor/packages, and puts their modules and
# licences into vendor/. vendor/lock has the SHA-512 of each package and of each file; --check compares the files with it,
# without a network.
#
# usage: controller/console/vendor.sh [--check]
set -euo pipefail
cd "$(dirname "$0")/vendor"

if [ "${1:-}" = --check ]; then
    grep -v '\.tgz$' lock | sha512sum --check --quiet --strict
    others=$(find . -type f ! -name lock ! -name packages -printf '%P\n' | sort | comm -23 - <(grep -v '\.tgz$' lock | awk '{print $2}' | sort))
    [ -z "$others" ] || { echo "vendor: not in the lock: $others" >&2; exit 1; }
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
find . -type f ! -name packages ! -name lock -delete
while read -r package version file name; do
    case $package in '' | '#'*) continue ;; esac
    archive=$(cd "$work" && npm pack --silent "$package@$version")
    sum=$(sha512sum "$work/$archive" | cut -d' ' -f1)
    # A version that is in the lock has the same content for ever.
    if known=$(awk -v name="$archive" '$2 == name { print $1 }' lock 2>/dev/null) && [ -n "$known" ] && [ "$known" != "$sum" ]; then
        echo "vendor: $archive is not the one of the lock" >&2
        exit 1
    fi
    echo "$sum  $archive" >>"$work/packages"
    mkdir -p "$work/out"
    tar -xzf "$work/$archive" -C "$work/out" --strip-components=1 "package/$file" package/LICENSE
    # Source maps are not shipped.
    grep -v '^//# sourceMappingURL=' "$work/out/$file" >"$name.js" || true
    # uPlot has its short form as a script alone; its last line makes it a module.
    [[ $file != *.iife.* ]] || echo 'export default uPlot;' >>"$name.js"
    cp "$work/out/LICENSE" "$name.LICENSE"
    rm -rf "$work/out"
done <packages
{ sort -u "$work/packages"; find . -type f ! -name lock ! -name packages -printf '%P\n' | sort | xargs sha512sum; } >"$work/lock"
mv "$work/lock" lock
echo "vendor: $(grep -c '\.js$' lock) modules are in controller/console/vendor"
