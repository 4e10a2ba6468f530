#!/usr/bin/env bash
# Every fuzz target, one after the other, so many seconds each: run.sh [SECONDS]. New inputs go to target/, not to the seeds.
set -euo pipefail
cd "$(dirname "$0")"
tools=$(cd ../.. && pwd)/.cache/tools
if ! command -v cargo-fuzz >/dev/null && ! [ -x "$tools/bin/cargo-fuzz" ]; then
  cargo install --locked --root "$tools" cargo-fuzz@0.13.2
fi
PATH="$tools/bin:$PATH"
cargo +nightly --version >/dev/null || { echo 'fuzzing needs a nightly compiler: rustup toolchain install nightly' >&2; exit 1; }
for target in audit body control conversation inside headers path sse framing; do
  echo "== $target, ${1:-300} s"
  mkdir -p "target/found/$target"
  cargo +nightly fuzz run "$target" "target/found/$target" "corpus/$target" -- -max_total_time="${1:-300}" -verbosity=0 -print_final_stats=1
done
