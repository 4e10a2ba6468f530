#!/bin/sh
# Makes .cache/spenddb at the root of the repository: what the LiteLLM of the tests needs to keep spend rows in a
# Postgres. Its database client wants a native engine from a host of its own; here the same engine comes from npm as
# WebAssembly, behind tests/spenddb/engine.mjs. In there are
#   engine.mjs, node_modules   the engine
#   python/prisma              LiteLLM's client, generated for its schema
#   cluster                    a Postgres cluster with LiteLLM's tables and no rows; tests start copies of it
# Silent and quick when it is up to date. Interrupted, it begins again: the directory gets its name last.
#
# usage: tests/setup/spenddb.sh
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
made=$root/.cache/spenddb
venv=$root/.cache/venv

say() { printf 'spenddb: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# Debian keeps the programs of a server off the PATH, by version.
postgres=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -n "$postgres" ] || fail "Postgres is missing: run tests/setup/packages.sh"
for program in node npm flock setpriv; do
    command -v "$program" >/dev/null 2>&1 || fail "$program is missing: run tests/setup/packages.sh"
done

wanted=$(
    { "$postgres/postgres" --version && node --version
      cat "$root/tests/python/requirements.txt" "$root"/tests/spenddb/*.* "$0"; } | sha256sum | cut -d' ' -f1
)
current() { [ "$(cat "$made/.stamp" 2>/dev/null)" = "$wanted" ]; }

! current || exit 0

"$root/tests/setup/venv.sh"
mkdir -p "$root/.cache"
# One builder at a time; who waited finds it done.
exec 9>"$root/.cache/spenddb.lock"
flock 9
! current || exit 0

new=$made.new
# In a place that an unprivileged user can reach, and short enough for a socket's name.
work=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || { kill -INT "$server" && wait "$server"; } 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

rm -rf "$new"
mkdir -p "$new"
cp "$root"/tests/spenddb/package.json "$root"/tests/spenddb/package-lock.json "$root"/tests/spenddb/.npmrc "$new"
install -m 0755 "$root/tests/spenddb/engine.mjs" "$new"

say "installing tests/spenddb/package-lock.json"
# Without scripts: theirs would download the native engine.
(cd "$new" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) >&2 ||
    fail "npm failed (above). Once the cause is gone, run this again."

say "generating LiteLLM's client"
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
# In a directory of its own: the environment of all other tests has the client as it came.
awk -v output="$new/python/prisma" '
    /binaryTargets/ { print "  binaryTargets = [\"native\"]"; print "  output = \"" output "\""; next }
    { print }' "$site/litellm/proxy/schema.prisma" >"$new/schema.prisma"
# Whichever engine its command line wants, it finds this one, and downloads none.
for engine in QUERY_ENGINE_BINARY SCHEMA_ENGINE_BINARY QUERY_ENGINE_LIBRARY FMT_BINARY; do
    export "PRISMA_$engine=$new/engine.mjs"
done
(cd "$new" && HOME=$work PATH="$venv/bin:$PATH" PRISMA_HIDE_UPDATE_MESSAGE=1 CHECKPOINT_DISABLE=1 \
    node node_modules/prisma/build/index.js generate --schema schema.prisma) >"$work/generate.log" 2>&1 ||
    { cat "$work/generate.log" >&2; fail "the client cannot be generated (above)"; }

say "making a cluster with LiteLLM's tables"
# Postgres refuses to run as root.
if [ "$(id -u)" = 0 ]; then
    as_nobody="setpriv --reuid=nobody --regid=nogroup --clear-groups"
    chown nobody "$work"
else
    as_nobody=
fi
export LC_ALL=C
# shellcheck disable=SC2086  # a list of words
(cd "$work" && exec $as_nobody "$postgres/initdb" -D "$work/data" -U sluice -A trust -E UTF8 --no-sync) >"$work/initdb.log" 2>&1 ||
    { cat "$work/initdb.log" >&2; fail "initdb failed (above)"; }
# shellcheck disable=SC2086
(cd "$work" && exec $as_nobody "$postgres/postgres" -D "$work/data" -k "$work" -c listen_addresses= -c fsync=off) >"$work/postgres.log" 2>&1 9>&- &
server=$!
tries=0
until "$postgres/psql" -q -h "$work" -U sluice -d postgres -c 'CREATE DATABASE litellm' >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] && kill -0 "$server" 2>/dev/null || { cat "$work/postgres.log" >&2; fail "Postgres did not start (above)"; }
    sleep 0.1
done
# Some of them fail on an empty database by design of their own; what counts is what is there in the end.
for migration in "$site"/litellm_proxy_extras/migrations/*/migration.sql; do
    "$postgres/psql" -q -h "$work" -U sluice -d litellm -f "$migration" >/dev/null 2>>"$work/migrations.log" || true
done
tables=$("$postgres/psql" -At -h "$work" -U sluice -d litellm -c \
    "SELECT count(*) FROM information_schema.columns WHERE table_name = 'LiteLLM_SpendLogs' AND column_name IN ('request_id', 'litellm_call_id', 'spend', 'metadata')") ||
    tables=0
[ "$tables" = 4 ] || { tail -n 20 "$work/migrations.log" >&2; fail "the migrations of LiteLLM left no table of spend rows (above)"; }
kill -INT "$server"
wait "$server" || fail "Postgres did not stop in order"
server=
mv "$work/data" "$new/cluster"

printf '%s\n' "$wanted" >"$new/.stamp"
rm -rf "$made"
mv "$new" "$made"
say "done"
