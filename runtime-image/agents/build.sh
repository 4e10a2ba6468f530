#!/usr/bin/env bash
# Builds images with an agent in each: runtime-image/agents/build.sh [--base IMAGE] [--tag IMAGE] [--version V] NAME…
#
# NAME is claude, codex, opencode, aider, or all; the image is sluice-NAME:latest unless --tag names another. The base is
# sluice-runtime:latest. Packages come from npm and PyPI, or from where NPM_CONFIG_REGISTRY and PIP_INDEX_URL point. What
# installs them trusts the certificates of this host (SSL_CERT_FILE, or those of /etc/ssl/certs); the image does not.
# SLUICE_BUILD_NETWORK is the network of the build: default, or host where the engine's bridge has none.
set -euo pipefail
self=$(realpath "$0")
cd "$(dirname "$self")"
export DOCKER_HOST=${DOCKER_HOST:-unix:///var/run/docker.sock}
export BUILDX_BUILDER=default # another builder would not see the images of this engine

base=sluice-runtime:latest
tag=
version=
all=(claude codex opencode aider)
names=()

usage() {
    echo "$1" >&2
    echo 'usage: runtime-image/agents/build.sh [--base IMAGE] [--tag IMAGE] [--version V] NAME…' >&2
    exit 2
}

while (($# > 0)); do
    case $1 in
        --base | --tag | --version)
            [[ -n ${2:-} && $2 != -* ]] || usage "$1 needs a value"
            declare "${1#--}=$2"
            shift 2
            ;;
        -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$self" && exit ;;
        all) names+=("${all[@]}") && shift ;;
        *)
            [[ $1 =~ ^[a-z]+$ && -e Dockerfile.$1 ]] || usage "there is no agent '$1'; there are ${all[*]}"
            names+=("$1") && shift
            ;;
    esac
done
((${#names[@]} > 0)) || usage "name an agent: ${all[*]}, or all"
((${#names[@]} == 1)) || [[ -z $tag$version ]] || usage "--tag and --version are for one agent"

docker image inspect "$base" >/dev/null 2>&1 || {
    echo "agents: there is no image $base: build it with runtime-image/build.sh" >&2
    exit 1
}

certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
context=$(mktemp -d)
log=$(mktemp)
trap 'rm -rf "$context" "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
install -m 0755 trust "$context/trust"
[[ ! -e $certificates ]] || install -m 0644 "$certificates" "$context/host-certificates.pem"

arguments=(--force-rm --network="${SLUICE_BUILD_NETWORK:-default}" --build-arg "BASE=$base")
[[ -z $version ]] || arguments+=(--build-arg "VERSION=$version")

image_id() { docker image inspect --format '{{.Id}}' "$1" 2>/dev/null; }

build() { # NAME FLAGS…: prints the image's id
    local dockerfile=Dockerfile.$1 argument
    shift
    # A name without a value takes its value from this environment, so a password in it is not on a command line.
    argument=$(sed -n 's/^ARG \(NPM_CONFIG_REGISTRY\|PIP_INDEX_URL\)$/\1/p' "$dockerfile")
    [[ -z ${!argument:-} ]] || set -- --build-arg "$argument" "$@"
    docker build --quiet "${arguments[@]}" "$@" --file "$dockerfile" "$context" 2>"$log" || {
        tail -n 25 "$log" >&2
        echo "agents: docker build failed; the lines above say why" >&2
        return 1
    }
}

for name in "${names[@]}"; do
    image=${tag:-sluice-$name:latest}
    echo "agents: building $image on $base …" >&2
    old=$(image_id "$image") || old=
    stage=$(build "$name" --target install)
    build "$name" --tag "$image" >/dev/null
    # Removes the image that lost its name to this one, unless a container uses it.
    [[ -z $old || $old == "$(image_id "$image")" ]] || docker image rm "$old" >/dev/null 2>&1 || true
    # The stage has a package manager's leftovers and the host's certificates: it does not stay.
    docker image rm --force "$stage" >/dev/null 2>&1 || true
    echo "agents: $image is built: $(docker image inspect --format '{{.Size}} bytes' "$image")" >&2
done
