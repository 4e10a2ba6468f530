#!/bin/sh
# Makes .cache/wheels at the root of the repository: the openai and anthropic SDKs for the Python of the runtime image,
# in the versions of tests/python/requirements.txt. A sandbox without a network sees them as a read-only directory.
# Silent and quick when it is up to date. Interrupted, it begins again: the directory gets its name last.
#
# usage: tests/setup/wheels.sh [IMAGE]      (sluice-runtime:latest)
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
wheels=$root/.cache/wheels
requirements=$root/tests/python/requirements.txt
image=${1:-sluice-runtime:latest}

say() { printf 'wheels: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

docker image inspect "$image" >/dev/null 2>&1 || fail "there is no image $image: run runtime-image/build.sh"
version=$(docker run --rm --network=none --entrypoint python3 "$image" -c 'import sys; print("%d.%d" % sys.version_info[:2])') ||
    fail "$image has no python3"
wanted="$version $(cat "$requirements" "$0" | sha256sum | cut -d' ' -f1)"
current() { [ "$(cat "$wheels/.stamp" 2>/dev/null)" = "$wanted" ]; }

! current || exit 0

"$root/tests/setup/venv.sh"
# One builder at a time; who waited finds it done.
exec 9>"$root/.cache/wheels.lock"
flock 9
! current || exit 0

say "installing the SDKs for Python $version of $image"
rm -rf "$wheels.new"
# What is native was built for a C library that is older than any image's.
platform=manylinux_2_17_$(uname -m)
constraints=$root/.cache/wheels.txt
grep -v -e '\[' -e '^#' "$requirements" >"$constraints"
"$root/.cache/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-compile \
    --target "$wheels.new" --only-binary=:all: --python-version "$version" --implementation cp --platform "$platform" \
    --platform "manylinux2014_$(uname -m)" --constraint "$constraints" openai anthropic httpx pydantic ||
    fail "pip failed (above). Once the cause is gone, run this again."
rm -rf "$wheels.new/bin" "$wheels"
# By the Python that will read it: a sandbox sees the directory read-only, and would compile it all for each run.
docker run --rm --network=none --user 0:0 -v "$wheels.new:/wheels" --entrypoint python3 "$image" \
    -m compileall -q -j 0 --invalidation-mode unchecked-hash /wheels >/dev/null || fail "cannot compile the SDKs in $image"
chmod -R a+rX "$wheels.new"
printf '%s\n' "$wanted" >"$wheels.new/.stamp"
mv "$wheels.new" "$wheels"
say "done"
