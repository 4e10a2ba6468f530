#!/bin/sh
# Installs the Debian packages that the tests need, and only those that are missing. Silent and instant when all are there.
#
# usage: tests/setup/packages.sh
set -eu

say() { printf 'packages: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

missing=""

# need COMMAND PACKAGES…: asks for the packages unless the command is there. sbin is not on every user's PATH.
need() {
    command=$1
    shift
    PATH="$PATH:/usr/sbin:/sbin" command -v "$command" >/dev/null 2>&1 || missing="$missing $*"
}

need socat socat
need curl curl
need flock util-linux
need cc gcc libc6-dev
need node nodejs
need npm npm
need git git
need sshd openssh-server
need setpriv util-linux
need valgrind valgrind
need strace strace
need prometheus prometheus
need systemd-analyze systemd
need dpkg-deb dpkg
# The plugin of Docker's own packages will do.
docker compose version >/dev/null 2>&1 || need docker-compose docker-compose
# Its programs are on the PATH of no user.
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql"
need python3 python3 python3-venv
if command -v python3 >/dev/null 2>&1; then
    # Debian's python3 comes without what `python3 -m venv` needs.
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
fi
[ -s /etc/ssl/certs/ca-certificates.crt ] || missing="$missing ca-certificates"
[ -n "$missing" ] || exit 0

command -v apt-get >/dev/null 2>&1 || fail "missing:$missing. There is no apt-get here; install them with your package manager."
[ "$(id -u)" = 0 ] || fail "missing:$missing. Run as root: apt-get install -y --no-install-recommends$missing"

log=$(mktemp)
# The packages would start their services; only the programs are wanted.
policy=/usr/sbin/policy-rc.d
if [ -e "$policy" ]; then
    policy=
else
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
trap 'rm -f "$log" $policy' EXIT
trap 'exit 130' INT TERM

say "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # a list of words
if ! { apt-get update && apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "apt-get failed (above). Fix it, then run this again."
fi
say "done"
