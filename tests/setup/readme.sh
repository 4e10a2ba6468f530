#!/usr/bin/env bash
# Puts the flags of `sluice-proxy --help` into README.md, between its two marks; --check only compares.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --quiet --locked -p sluice-proxy
help=$(COLUMNS=100 target/debug/sluice-proxy --help | awk '/^Each flag/{exit} /^Options:/{on=1} on')
now=$(awk -v begin='<!-- flags -->' -v end='<!-- /flags -->' '$0==begin{print; print ""; print "```text"; while((getline line < "/dev/stdin")>0) print line; print "```"; print ""; skip=1} $0==end{skip=0} !skip&&$0!=begin{print}' README.md <<<"$help")
if [ "${1-}" = --check ]; then
  diff -u README.md <(printf '%s\n' "$now") || { echo 'README.md: the flag table is not that of --help; run make readme' >&2; exit 1; }
else
  printf '%s\n' "$now" > README.md.new && mv README.md.new README.md
fi
