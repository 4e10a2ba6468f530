#!/usr/bin/env bash
# Runs `make check && make test` several times on a loaded machine: tests/loaded.sh [SUITES [AT_ONCE]], by default 5 and 3
#
# Every suite runs the last commit, in a clean clone whose programs are built once before. AT_ONCE suites run at the same
# time, beside two loops that only use a processor. They begin ten minutes apart, so they are at different stages. Each suite
# has mount, network and process namespaces of its own, and in them a Docker Engine, /tmp, /run and /var/log, since suites
# that share an engine disturb each other. Its network has nothing but the loopback interface: a test that needs another
# machine fails.
#
# Needs root, and 12 GB of disk plus 3 GB for each suite at the same time, in .cache/loaded or in SLUICE_LOADED_DIR.
# The results are in DIRECTORY/results, the output of suite N in DIRECTORY/suite-N.log. Exit status 1 if a suite failed.
set -euo pipefail
self=$(realpath "$0")
cd "$(dirname "$self")/.."
suites=${1:-5}
at_once=${2:-3}
directory=${SLUICE_LOADED_DIR:-$PWD/.cache/loaded}
clone=$directory/clone # every suite sees its files here: cargo builds again what it finds at another path
images=$directory/images.tar
results=$directory/results
background=()
declare -A running=() # the number of a suite by its process
failed=()

fail() {
    echo "loaded.sh: $1" >&2
    exit 2
}

# Downloads and installs what the tests need, on this machine: a suite has no network for it.
set_up() {
    tests/setup/packages.sh
    tests/setup/browser.sh
    make --no-print-directory test-setup .cache/tools/bin/cargo-deny
    docker image ls --filter dangling=false --format '{{.Repository}}:{{.Tag}}' | grep '^sluice-' | xargs docker save -o "$images"
}

# The clean clone, at the last commit, with the downloads of this checkout.
make_clone() {
    local commit
    commit=$(git rev-parse HEAD)
    [[ -d $directory/base/.git ]] || git clone --quiet . "$directory/base"
    git -C "$directory/base" fetch --quiet "$PWD" "$commit"
    git -C "$directory/base" checkout --quiet --force --detach "$commit"
    git -C "$directory/base" clean --quiet --force -d
    mkdir -p "$directory/base/.cache" "$clone"
    tar -C .cache --exclude=./loaded -cf - . | tar -C "$directory/base/.cache" -xf -
}

# Builds what a suite builds. Runs in a mount namespace.
build() {
    mount --make-rprivate /
    mount --bind "$directory/base" "$clone"
    cd "$clone"
    make check
    make test-build dist
    cargo test --locked --workspace --no-run
    cargo test --locked -p sluice-testkit --test e2e --no-run
    cargo test --locked -p sluice-testkit --features cost --test cost --no-run
    cargo test --locked -p sluice-testkit --features release --test release --no-run
}

# Runs the suite of this number. Runs in namespaces of its own, whose processes end with it.
suite() {
    local number=$1 own=$directory/suite-$1 start=$SECONDS status=0
    mount --make-rprivate /
    rm -rf "$own"
    mkdir -p "$own"/{changes,work,docker,tmp,log}
    chmod 1777 "$own/tmp"
    mount -t overlay overlay -o "lowerdir=$directory/base,upperdir=$own/changes,workdir=$own/work" "$clone"
    mount --bind "$own/docker" /var/lib/docker
    mount --bind "$own/tmp" /tmp
    mount --bind "$own/log" /var/log
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir /run/lock
    ip link set lo up
    cd "$clone"
    { deploy/docker.sh start && docker load --quiet -i "$images" && make check && make test; } || status=$?
    echo "suite $number of $(git rev-parse --short HEAD): exit status $status after $(((SECONDS - start) / 60)) min" >>"$results"
    return "$status"
}

# Starts the suite of this number in the background.
start_suite() {
    unshare --mount --net --pid --fork --kill-child --mount-proc "$self" --suite "$1" >"$directory/suite-$1.log" 2>&1 </dev/null &
    running[$!]=$1
}

# Waits for some seconds; an interrupt ends the wait.
pause() {
    sleep "$1" &
    background+=($!)
    wait $!
    unset 'background[-1]' # another process may get its pid
}

# Waits until one of the suites has ended, and removes its files except for its log.
await_suite() {
    local process='' number
    wait -n -p process "${!running[@]}" || failed+=("${running[$process]}")
    number=${running[$process]}
    unset "running[$process]"
    grep "^suite $number " "$results" || echo "suite $number ended without a result"
    rm -rf "$directory/suite-$number"
}

# Ends every process that this script has started. With `unshare` ends all that a suite has started.
stop() {
    trap '' EXIT INT TERM
    ((${#background[@]} + ${#running[@]} == 0)) || kill -KILL "${background[@]}" "${!running[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    for number in "${running[@]}"; do rm -rf "$directory/suite-$number"; done
}

main() {
    [[ $suites =~ ^[1-9][0-9]?$ && $at_once =~ ^[1-9][0-9]?$ ]] ||
        fail "the numbers of suites are from 1 to 99, not ${suites@Q} and ${at_once@Q}"
    ((EUID == 0)) || fail 'it makes namespaces: run it as root'
    trap stop EXIT
    trap 'exit 130' INT TERM
    mkdir -p "$directory"
    : >"$results"

    echo "loaded.sh: builds once; its output is in $directory/build.log"
    { "$self" --set-up && "$self" --clone && unshare --mount "$self" --build; } >"$directory/build.log" 2>&1 ||
        fail "the build failed: see $directory/build.log"
    for _ in 1 2; do
        (while :; do :; done) &
        background+=($!)
    done
    echo "loaded.sh: runs suites 1 to $suites, at most $at_once at the same time; the output of N is in $directory/suite-N.log"
    for number in $(seq "$suites"); do
        ((number == 1 || number > at_once)) || pause 600
        ((${#running[@]} < at_once)) || await_suite
        start_suite "$number"
    done
    while ((${#running[@]} > 0)); do await_suite; done
    echo "loaded.sh: $((suites - ${#failed[@]})) of $suites suites passed" | tee -a "$results"
    ((${#failed[@]} == 0))
}

case ${1:-} in
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$self" ;;
    --set-up) set_up ;;
    --clone) make_clone ;;
    --build) build ;; # in a mount namespace
    --suite) suite "$2" ;; # in namespaces of its own
    *) main ;;
esac
exit
