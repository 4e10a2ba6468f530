#!/usr/bin/env bash
# The stages of `make test`, one after the other. One that fails does not hide what comes after it.
#
# usage: make test
set -uo pipefail
cd "$(dirname "$0")/.."
trap 'exit 130' INT

failed=()
# Runs a command as the stage of this name.
stage() {
    local name=$1
    shift
    echo "== $name ($((SECONDS / 60)) min)"
    "$@" && return
    failed+=("$name")
    return 1
}

stage 'every test of the workspace' cargo test --workspace --locked --no-fail-fast
if stage 'the release programs: static, stripped, a panic aborts' make --no-print-directory dist; then
    export SLUICE_PROXY_BIN=$PWD/dist/sluice-proxy
    stage 'what the release sidecar does differently' cargo test --locked -p sluice-testkit --test e2e --no-fail-fast -- \
        budgets:: calls:: hardening:: lifecycle:: start:: streams:: upstreams::
    stage 'its bridge, in images of any kind' cargo test --locked -p sluice-testkit --test runs --no-fail-fast -- any_image::
    stage 'what a call of it may cost: instructions and allocations' \
        cargo test --locked -p sluice-testkit --features cost --test cost
    stage 'kills at random moments; make chaos has more of them' \
        env SLUICE_BIN=dist/sluice SLUICE_PROXY_BIN=dist/sluice-proxy target/debug/sluice-chaos 300
    if stage 'the release: archive, package, sidecar image' deploy/release.sh; then
        stage 'what an operator gets from the release' \
            cargo test --locked -p sluice-testkit --features release --test release --no-fail-fast
    fi
fi

if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}" >&2
    exit 1
fi
echo "test: every stage passed, after $((SECONDS / 60)) min"
