# The tasks of the project; CI runs the same. Each target sets up what it needs, and a second run is quick.
#   make demo          everything from nothing to an agent's answer, and to a daemon     make demo-clean   undoes it
#   make check         format, lints, licences, reference pages, links
#   make test          every test: real LiteLLM, real Docker
#   make test-agents   every real agent and framework in a sandbox; make test has four of them
#   make test-chat     a hundred chats whose agents all work at once, and a worker that reports 100,000 events
#   make test-console  the console with 100,000 events and 20 tabs
#   make test-git      a repository of 1 GB: clone, push, bundle, publication, with times and memory; needs 10 GB of disk
#   make test-loaded   make check and make test, five times on a loaded machine; takes two hours
#   make test-pause    pauses and approvals of ten minutes, with real agents and SDKs that wait for them
#   make test-webui    Open WebUI, unmodified, in Chromium, with agents as its models; installs two gigabytes
#   make docs          the book of docs/ in target/book, with all links  make reference    the generated parts of docs/reference
#   make dist          the static release programs                       make profile      the compiler's profile of a call
#   make release       archive, Debian package and sidecar image in dist/release, with checksums
#   make image         the runtime image of agents                       make agents       Claude Code, Codex, aider, opencode on it
#   make bench         side by side with nginx, HAProxy, hyper           make fuzz         every fuzz target, SECONDS_EACH (300)
#   make chaos         N kills (2000) of sidecars, clients, upstreams and controllers under load: no call is lost
#   make keys          N calls (1000) with keys of their own at the real LiteLLM: none that fits is refused
#   make vendor        the libraries of the console, by npm              make screenshots  pictures of the console in docs/images
#   make clean         removes what was built                            make distclean    also what was downloaded

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
SECONDS_EACH ?= 300
N ?= 2000
TARGET := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
DENY := .cache/tools/bin/cargo-deny
MDBOOK := .cache/tools/bin/mdbook
PROFILE := proxy/profile/sluice-proxy.profdata
export CARGO_TERM_COLOR ?= auto

.PHONY: help demo demo-clean check test test-setup test-build test-agents test-git test-loaded test-pause test-chat test-webui test-console docs reference dist release image agents bench chaos keys fuzz profile vendor screenshots clean distclean
help:
	@sed -n '2,/^$$/s/^#  //p' Makefile

demo:
	@deploy/demo.sh

demo-clean:
	@deploy/demo.sh clean

check: $(DENY)
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features sluice-testkit/cost,sluice-testkit/release --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked --quiet
	$(DENY) --log-level error check bans licenses sources
	tests/setup/reference.py --check
	tests/setup/links.py
	controller/console/vendor.sh --check
	@echo 'check: format, lints, docs, licences, reference pages, links and vendored files are in order'

# Apart from `make check`: mdBook takes two minutes to install, and tests/setup/links.py checks the same links in the sources.
docs: $(MDBOOK)
	$(MDBOOK) build docs
	tests/setup/links.py --book target/book
	@echo 'docs: the book is in target/book; its links are in order'

# The generated parts of docs/reference, from --help and from the tables in the sources.
reference:
	tests/setup/reference.py

# What waits for the network goes on beside what needs the processors.
test:
	tests/setup/packages.sh
	tests/setup/browser.sh
	$(MAKE) --no-print-directory -j2 test-setup test-build
	tests/stages.sh

test-setup:
	tests/setup/axe.sh
	tests/setup/venv.sh
	tests/setup/spenddb.sh
	$(MAKE) --no-print-directory image
	tests/setup/wheels.sh
	tests/setup/langfuse.sh
	tests/setup/agents.sh short
	tests/setup/emulate.sh

# Cargo has its own number of processes.
test-build:
	env -u MAKEFLAGS -u MFLAGS cargo build --workspace --all-targets --locked

# `make test` has Codex, Claude Code, LangGraph and the AI SDK of these. Tests named `defect_…` are known to fail.
test-agents:
	tests/setup/packages.sh
	tests/setup/venv.sh
	$(MAKE) --no-print-directory image
	tests/setup/agents.sh all
	tests/setup/emulate.sh
	cargo build --workspace --bins --locked
	cargo test --locked -p sluice-testkit --test conformance -- --include-ignored --skip defect_ --skip ten_minutes

# `make test` has the same test with a few megabytes. Times and memory are printed.
test-git:
	tests/setup/packages.sh
	tests/setup/venv.sh
	tests/setup/emulate.sh
	$(MAKE) --no-print-directory image
	cargo build --workspace --bins --locked
	cargo test --locked -p sluice-testkit --test runs -- --ignored clone_large

# SUITES='1 1' runs one; tests/loaded.sh --help says more.
test-loaded:
	tests/loaded.sh $(SUITES)

# Both at the same time: eleven minutes, after what it builds. `make test` has the same tests without the waiting.
test-pause:
	tests/setup/packages.sh
	$(MAKE) --no-print-directory image
	tests/setup/agents.sh short
	cargo build --workspace --bins --locked
	timeout 1800 cargo test --locked -p sluice-testkit --test conformance -- --ignored ten_minutes

# A hundred containers at the same time, which take 2.4 GB of memory together. `make test` has the same tests with fewer chats and events.
test-chat:
	tests/setup/packages.sh
	$(MAKE) --no-print-directory image
	cargo build --workspace --bins --locked
	cargo test --locked -p sluice-testkit --test runs -- --ignored chat_load
	SLUICE_FLOOD_EVENTS=100000 cargo test --locked -p sluice-testkit --test runs -- serve::hostile::a_flood_of_events

# Open WebUI is installed from PyPI, without what it needs only to embed documents.
test-webui:
	tests/setup/packages.sh
	tests/setup/browser.sh
	tests/setup/venv.sh
	tests/setup/webui.sh
	$(MAKE) --no-print-directory image
	cargo build --workspace --bins --locked
	cargo test --locked -p sluice-testkit --test console -- --ignored webui

# `make test` has the same tests with 5,000 events and six tabs. The machine does nothing else: a task of the page may take 100 ms.
test-console:
	tests/setup/packages.sh
	tests/setup/browser.sh
	tests/setup/axe.sh
	$(MAKE) --no-print-directory image
	cargo build --workspace --bins --locked
	SLUICE_CONSOLE_EVENTS=100000 SLUICE_CONSOLE_TABS=20 cargo test --locked -p sluice-testkit --test console -- --test-threads=1

# With glibc linked statically, the programs run on any Linux of their architecture. The target is named so that the flag
# reaches the programs and not the build scripts. A file beside each program has the names of its functions, for
# callgrind, perf and gdb. The profile tells the compiler which branches are taken: an eighth fewer instructions.
# Packed relative relocations take 180 KB less; glibc 2.36 and newer apply them in a static program. The index of unwind
# tables (53 KB) is left out: a panic ends the process, and nothing in it unwinds. Built apart, the sidecar has none of the
# features of libraries that only the controller asks for.
dist:
	for package in sluice-proxy sluice-controller; do \
	    CARGO_PROFILE_RELEASE_STRIP=none RUSTFLAGS='-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs -C link-arg=-Wl,--no-eh-frame-hdr -C profile-use=$(CURDIR)/$(PROFILE)' \
	        cargo build --release --locked --target $(TARGET) -p $$package || exit 1; \
	done
	mkdir -p dist
	for program in sluice sluice-proxy; do \
	    objcopy --only-keep-debug target/$(TARGET)/release/$$program dist/$$program.debug; \
	    install -m 0755 target/$(TARGET)/release/$$program dist/$$program; \
	    objcopy --strip-all --add-gnu-debuglink=dist/$$program.debug dist/$$program; \
	    ldd dist/$$program 2>&1 | grep -q 'statically linked\|not a dynamic' || { echo "dist/$$program is not static"; exit 1; }; \
	done
	@[ $$(stat -c %s dist/sluice-proxy) -le 6000000 ] || { echo "dist/sluice-proxy is larger than 6 MB: every run starts one"; exit 1; }
	@ls -l dist/sluice dist/sluice-proxy

# The sidecar's image is built by the local engine, from nothing but the program.
release: dist
	deploy/docker.sh start
	deploy/release.sh

image:
	deploy/docker.sh start
	runtime-image/build.sh

# AGENTS='claude codex' builds only those.
agents: image
	runtime-image/agents/build.sh $(or $(AGENTS),all)

bench: dist image
	tests/setup/bench.sh
	tests/setup/browser.sh
	cargo build --release --locked -p sluice-testkit --bin sluice-bench
	SLUICE_BIN=dist/sluice SLUICE_PROXY_BIN=dist/sluice-proxy target/release/sluice-bench $(BENCH)

# CHAOS='--seed 7' repeats the choices of that run. The files of a run that found a fault are kept, and their path is printed.
chaos: dist image
	cargo build --release --locked -p sluice-testkit --bin sluice-chaos
	SLUICE_BIN=dist/sluice SLUICE_PROXY_BIN=dist/sluice-proxy target/release/sluice-chaos $(N) $(CHAOS)

# Calls back to back, and four at once.
keys: N := $(if $(filter file,$(origin N)),1000,$(N))
keys:
	tests/setup/packages.sh
	tests/setup/venv.sh
	tests/setup/spenddb.sh
	$(MAKE) --no-print-directory image
	cargo build --workspace --bins --locked
	SLUICE_KEY_CALLS=$(N) cargo test --locked -p sluice-testkit --test runs -- virtual_keys::gateway::a_key_of_a_run

fuzz:
	proxy/fuzz/run.sh $(SECONDS_EACH)

# Needs valgrind and LLVM's llvm-profdata; the result is committed.
profile:
	tests/setup/bench.sh
	proxy/profile/record.sh $(TARGET)

# The versions are in controller/console/vendor/packages; the sums of the files are in the lock beside it.
vendor:
	controller/console/vendor.sh

# Few and small: each picture is in a page of the documents, or shows a look that no other one does.
PICTURES := ^(sandboxes-light|sandbox-light|sandbox-dark|sandbox-narrow|cost-light|calls-dark|diff-light|git-light|audit-dark|new-light|approvals-light|agents-light|spending-light|host-dark|chat-narrow)[.]png$$
screenshots:
	tests/setup/browser.sh
	$(MAKE) --no-print-directory image
	cargo build --workspace --bins --locked
	mkdir -p docs/images
	SLUICE_PICTURES=$(CURDIR)/docs/images cargo test --locked -p sluice-testkit --test console -- pictures::
	cd docs/images && ls *.png | grep -vE '$(PICTURES)' | xargs rm -f

# Without optimisation: it is built in half the time, and a check of this workspace takes a second.
$(DENY):
	cargo install --debug --locked --root .cache/tools --no-default-features cargo-deny@0.20.2

$(MDBOOK):
	cargo install --locked --root .cache/tools --no-default-features mdbook@0.5.4

clean:
	cargo clean
	rm -rf dist proxy/fuzz/target

distclean: clean
	rm -rf .cache
