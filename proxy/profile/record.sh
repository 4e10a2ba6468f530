#!/bin/sh
# Records which ways through the sidecar are taken, for the compiler: proxy/profile/sluice-proxy.profdata.
#
# usage: make profile
# After a change of the path of a call, or of the compiler. `make dist` reads the file and needs nothing of this.
set -eu

target=$1
top=$(cd "$(dirname "$0")/../.." && pwd)
build=$top/target/profile
raw=$build/raw

# LLVM's tool must be of the compiler's own version.
major=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
tool=
for candidate in "$(rustc --print sysroot)/lib/rustlib/$target/bin/llvm-profdata" \
    "/usr/lib/llvm-$major/bin/llvm-profdata" "$(command -v "llvm-profdata-$major" || true)"; do
    [ -x "$candidate" ] && tool=$candidate && break
done
[ -n "$tool" ] || {
    echo "profile: needs llvm-profdata of LLVM $major: rustup component add llvm-tools, or apt-get install llvm-$major" >&2
    exit 1
}

# As `make dist` builds it, since a function's name has the features of its crate in it.
CARGO_PROFILE_RELEASE_STRIP=none RUSTFLAGS="-C target-feature=+crt-static -C profile-generate=$raw" \
    cargo build --release --locked --target "$target" --target-dir "$build" -p sluice-proxy
cargo build --release --locked -p sluice-testkit --bin sluice-bench

rm -rf "$raw"
# Under callgrind, where the sidecar cannot shut itself off from files: the profile is written when it ends.
SLUICE_PROXY_BIN=$build/$target/release/sluice-proxy LLVM_PROFILE_FILE=$raw/%p.profraw \
    "$top/target/release/sluice-bench" --only instructions --contenders sluice
# What the bench does not call is left out, and compiled as without a profile: it is not known to be rare.
"$tool" merge --sparse --output "$top/proxy/profile/sluice-proxy.profdata" "$raw"/*.profraw
ls -l "$top/proxy/profile/sluice-proxy.profdata"
