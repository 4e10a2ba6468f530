#!/bin/sh
# Makes .cache/agents at the root of the repository: real agents, in the versions that tests/agents/packages names. A
# sandbox sees its directories read-only. `short` is what `make test` runs, `all` what `make test-agents` runs.
#   short       Codex, Claude Code, the AI SDK and the SDKs of OpenAI and Anthropic, from npm
#   long        opencode (of x86-64), the Agents SDK for JavaScript and both SDKs, from npm
#   frameworks  LangGraph, the Agents SDK and pydantic-ai, for the Python of the runtime image
#   aider, mini aider and mini-swe-agent, for the same
# `short` as an argument is short, frameworks and aider.
# Silent and quick when all is up to date. Interrupted, it goes on with the directory where it was: each one gets its name
# last.
#
# usage: tests/setup/agents.sh [short|all] [IMAGE]      (short sluice-runtime:latest)
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
agents=$root/.cache/agents
packages=$root/tests/agents/packages
image=${2:-sluice-runtime:latest}

say() { printf 'agents: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

case ${1:-short} in
    short) wanted_directories="short frameworks aider" ;;
    all) wanted_directories="short frameworks aider long mini" ;;
    *) fail "there is no '$1': usage: tests/setup/agents.sh [short|all] [IMAGE]" ;;
esac

# What a directory is made of: its stamp.
made_of() {
    case $1 in
        short | long) cat "$packages/$1"/package*.json "$0" ;;
        *) printf '%s\n' "$image_id" && cat "$packages/$1.txt" "$0" ;;
    esac | sha256sum | cut -d' ' -f1
}
current() { [ "$(cat "$agents/$1/.stamp" 2>/dev/null)" = "$(made_of "$1")" ]; }

for program in npm flock docker; do
    command -v "$program" >/dev/null 2>&1 || fail "$program is missing: run tests/setup/packages.sh and deploy/docker.sh start"
done
image_id=$(docker image inspect --format '{{.Id}}' "$image" 2>/dev/null) || fail "there is no image $image: run runtime-image/build.sh"

missing=""
for directory in $wanted_directories; do current "$directory" || missing="$missing $directory"; done
[ -n "$missing" ] || exit 0

"$root/tests/setup/venv.sh"
mkdir -p "$agents"
# One builder at a time; who waited finds it done.
exec 9>"$agents/lock"
flock 9

from_npm() {
    cp "$packages/$1/package.json" "$packages/$1/package-lock.json" "$packages/$1/.npmrc" "$new"
    # Without scripts: theirs only link the program of this platform, which is named here by its own package.
    (cd "$new" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) >&2 ||
        fail "npm failed (above). Once the cause is gone, run this again."
}

from_pypi() {
    version=$(docker run --rm --network=none --entrypoint python3 "$image" -c 'import sys; print("%d.%d" % sys.version_info[:2])') ||
        fail "$image has no python3"
    machine=$(uname -m)
    "$root/.cache/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-compile --no-deps \
        --target "$new" --only-binary=:all: --python-version "$version" --implementation cp \
        --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" \
        -r "$packages/$1.txt" || fail "pip failed (above). Once the cause is gone, run this again."
    # By the Python that will read it: a sandbox sees the directory read-only, and would compile it all for each run.
    docker run --rm --network=none --user 0:0 -v "$new:/packages" --entrypoint python3 "$image" \
        -m compileall -q -j 0 --invalidation-mode unchecked-hash /packages >/dev/null ||
        say "some files of $1 are not for this Python; that is as their authors left them"
}

for directory in $missing; do
    ! current "$directory" || continue
    say "installing $directory"
    new=$agents/$directory.new
    rm -rf "$new"
    mkdir -p "$new"
    case $directory in
        short | long) from_npm "$directory" ;;
        *) from_pypi "$directory" ;;
    esac
    chmod -R a+rX "$new"
    made_of "$directory" >"$new/.stamp"
    rm -rf "${agents:?}/$directory"
    mv "$new" "$agents/$directory"
done
say "done"
