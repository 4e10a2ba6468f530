#!/bin/sh
# Installs Debian's Chromium and its driver for the tests of the console. Silent and instant when both are there.
#
# usage: tests/setup/browser.sh
set -eu

if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then exit 0; fi
fail() {
    printf 'browser: %s\n' "$*" >&2
    exit 1
}
command -v apt-get >/dev/null 2>&1 || fail "there is no apt-get here; install chromium and chromedriver with your package manager"
[ "$(id -u)" = 0 ] || fail "run as root: apt-get install -y --no-install-recommends chromium chromium-driver"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update && apt-get install -y --no-install-recommends chromium chromium-driver; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "apt-get failed (above). Fix it, then run this again."
fi
