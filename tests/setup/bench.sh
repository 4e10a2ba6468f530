#!/bin/sh
# Installs the proxies that `make bench` compares with, taskset, strace and valgrind. Does nothing where they exist.
set -eu

missing=
command -v nginx >/dev/null 2>&1 || [ -x /usr/sbin/nginx ] || missing="$missing nginx-light"
command -v haproxy >/dev/null 2>&1 || [ -x /usr/sbin/haproxy ] || missing="$missing haproxy"
command -v taskset >/dev/null 2>&1 || missing="$missing util-linux"
command -v strace >/dev/null 2>&1 || missing="$missing strace"
command -v valgrind >/dev/null 2>&1 || missing="$missing valgrind"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
    echo "bench needs$missing; run as root: apt-get install --no-install-recommends$missing" >&2
    exit 77
fi

# The packages would start their services on port 80; only the programs are wanted.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # a list of words on purpose
apt-get install -y -qq --no-install-recommends $missing
