# The one door. Each target sets up what it needs; a second run is quick.
#   make test     every test, against a real LiteLLM           make check    format, lints, licences, docs
#   make dist     the static release binary                    make bench    side by side with nginx and HAProxy
#   make fuzz     every fuzz target, SECONDS each (300)        make clean    what was built; make distclean: and downloaded

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
SECONDS_EACH ?= 300
TARGET := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
DENY := .cache/tools/bin/cargo-deny
export CARGO_TERM_COLOR ?= auto

.PHONY: help check test dist bench fuzz readme clean distclean
help:
	@sed -n '2,4s/^#  //p' Makefile

check: $(DENY)
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked --quiet
	$(DENY) --log-level error check bans licenses sources
	tests/setup/readme.sh --check
	@echo 'check: format, lints, docs, licences and the flag table are in order'

test:
	tests/setup/packages.sh
	tests/setup/venv.sh
	cargo build --workspace --bins --locked
	cargo test --workspace --locked --no-fail-fast
	@echo '== once more, what the shipped binary does differently: static, stripped, a panic aborts'
	$(MAKE) --no-print-directory dist
	SLUICE_PROXY_BIN=$(CURDIR)/dist/sluice-proxy cargo test --locked -p sluice-testkit --test e2e -- \
	    calls:: hardening:: lifecycle:: start:: streams:: upstreams::

# glibc, linked in whole: one file that runs on any Linux of its architecture. The target is named so that the flag
# reaches the program and not the build scripts.
dist:
	RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --locked --target $(TARGET) -p sluice-proxy
	mkdir -p dist
	install -m 0755 target/$(TARGET)/release/sluice-proxy dist/sluice-proxy
	@ldd dist/sluice-proxy 2>&1 | grep -q 'statically linked\|not a dynamic' || { echo 'dist/sluice-proxy is not static'; exit 1; }
	@ls -l dist/sluice-proxy

bench: dist
	tests/setup/bench.sh
	cargo build --release --locked -p sluice-testkit --bin sluice-bench
	SLUICE_PROXY_BIN=dist/sluice-proxy target/release/sluice-bench $(BENCH)

fuzz:
	proxy/fuzz/run.sh $(SECONDS_EACH)

# The flag table in README.md, from --help.
readme:
	tests/setup/readme.sh

$(DENY):
	cargo install --locked --root .cache/tools --no-default-features cargo-deny@0.20.2

clean:
	cargo clean
	rm -rf dist proxy/fuzz/target

distclean: clean
	rm -rf .cache
