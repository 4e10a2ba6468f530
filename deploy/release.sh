#!/usr/bin/env bash
# Packs the programs of `make dist` for hosts without Rust: deploy/release.sh [DIRECTORY]
#
#   sluice-VERSION-linux-ARCH.tar.gz         both programs, manual pages, completions, files for a host, runtime image
#   sluice_VERSION_ARCH.deb                  the same, for Debian and Ubuntu
#   sluice-proxy-VERSION-linux-ARCH.image.tar.gz  the sidecar alone, for `docker load`
#   SHA256SUMS                               checksums of these
#
# DIRECTORY is dist/release by default; it is replaced if it is a release, and refused if it has other files. Packing the
# same programs again gives the same archive and package, byte for byte.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath -m -- "${1:-$root/dist/release}")
cd "$root"
export LC_ALL=C DOCKER_HOST=${DOCKER_HOST:-unix:///var/run/docker.sock}
umask 022

fail() {
    echo "release: $1" >&2
    exit 1
}

for program in sluice sluice-proxy; do
    [[ -x dist/$program ]] || fail "dist/$program is missing: run make dist first"
done
if [[ -e $out && ! -e $out/SHA256SUMS && -n $(ls -A "$out") ]]; then
    fail "$out has other files than a release: name a new or empty directory"
fi
command -v dpkg-deb >/dev/null || fail "dpkg-deb is missing: apt-get install dpkg"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
machine=$(uname -m)
case $machine in
    x86_64) debian=amd64 ;;
    aarch64) debian=arm64 ;;
    *) fail "no release for $machine: x86_64 and aarch64 only" ;;
esac
# The date of every packed file. A source archive has no commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
made=$work/made
mkdir -p "$made"

# Fills the directories that both the archive and the package have.
shared() { # DIRECTORY OF MANUAL PAGES, OF COMPLETIONS, OF DOCUMENTS, OF FILES
    local man=$1 completions=$2 documents=$3 files=$4
    mkdir -p "$man" "$completions"/{bash,zsh,fish} "$documents" "$files"
    dist/sluice man "$man" >/dev/null
    gzip --best --no-name "$man"/*.1
    dist/sluice completions bash >"$completions/bash/sluice"
    dist/sluice completions zsh >"$completions/zsh/_sluice"
    dist/sluice completions fish >"$completions/fish/sluice.fish"
    cp LICENSE README.md CHANGELOG.md SECURITY.md "$documents/"
    cp -r docs "$documents/docs"
    cp deploy/{litellm.yaml,docker-compose.yaml,compose.sidecar.yaml,git.conf} "$files/"
    cp -r deploy/prometheus "$files/prometheus"
    cp -r deploy/grafana "$files/grafana"
    cp -r runtime-image "$files/runtime-image"
}

# Dates and modes depend on nothing but the commit.
settle() { # DIRECTORY
    find "$1" -type d -exec chmod 0755 {} +
    find "$1" -type f -perm /0111 -exec chmod 0755 {} +
    find "$1" -type f ! -perm /0111 -exec chmod 0644 {} +
    find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

archive() {
    local name=sluice-$version-linux-$machine
    local root=$work/$name
    mkdir -p "$root/bin" "$root/deploy"
    install -m 0755 dist/sluice dist/sluice-proxy "$root/bin/"
    shared "$root/man/man1" "$root/completions" "$root" "$root/deploy"
    mv "$root/deploy/runtime-image" "$root/runtime-image"
    cp deploy/{README.md,sluice.toml,sluice-serve.service,sluice-sweep.service,sluice-sweep.timer,seccomp.json,docker.sh} "$root/deploy/"
    settle "$root"
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --directory "$work" "$name" |
        gzip --best --no-name >"$made/$name.tar.gz"
}

package() {
    local root=$work/package documents=usr/share/doc/sluice
    mkdir -p "$root"/{DEBIAN,usr/bin,etc/sluice,lib/systemd/system}
    install -m 0755 dist/sluice dist/sluice-proxy "$root/usr/bin/"
    shared "$root/usr/share/man/man1" "$work/completions" "$root/$documents" "$root/usr/share/sluice"
    mv "$root/$documents/LICENSE" "$root/$documents/copyright"
    mkdir -p "$root"/usr/share/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
    cp "$work/completions/bash/sluice" "$root/usr/share/bash-completion/completions/"
    cp "$work/completions/zsh/_sluice" "$root/usr/share/zsh/vendor-completions/"
    cp "$work/completions/fish/sluice.fish" "$root/usr/share/fish/vendor_completions.d/"
    cp deploy/sluice.toml "$root/etc/sluice/"
    # The units of the package name the programs in /usr/bin, where the package has them.
    local unit
    for unit in deploy/*.service deploy/*.timer; do
        sed 's|/usr/local/bin/|/usr/bin/|g' "$unit" >"$root/lib/systemd/system/${unit##*/}"
    done
    sed -i 's|/usr/local/bin/|/usr/bin/|g' "$root/usr/share/sluice/compose.sidecar.yaml"
    echo /etc/sluice/sluice.toml >"$root/DEBIAN/conffiles"
    cat >"$root/DEBIAN/control" <<END
Package: sluice
Version: $version
Architecture: $debian
Maintainer: The Sluice project <sluice@invalid>
Section: admin
Priority: optional
Installed-Size: $(find "$root" -type f -printf '%s\n' | awk '{ bytes += $1 } END { print int((bytes + 1023) / 1024) }')
Recommends: docker.io | docker-ce
Description: Runs AI agents in containers without a network
 An agent in a container without a network gets exactly one way out: a unix
 socket to its model. A sidecar per run owns the socket, holds the key, filters
 each call and records it before it is sent. Both programs are static.
END
    settle "$root"
    dpkg-deb --root-owner-group -Zgzip --build "$root" "$made/sluice_${version}_$debian.deb" >/dev/null
}

image() {
    local context=$work/image name=sluice-proxy:$version
    docker version >/dev/null 2>&1 || fail "no Docker Engine answers at $DOCKER_HOST: deploy/docker.sh start"
    mkdir -p "$context/empty"
    install -m 0755 dist/sluice-proxy "$context/"
    docker build --quiet --tag "$name" --file deploy/sidecar/Dockerfile "$context" >/dev/null
    docker save "$name" | gzip --best --no-name >"$made/sluice-proxy-$version-linux-$machine.image.tar.gz"
}

archive
package
image
(cd "$made" && sha256sum -- * >SHA256SUMS)
# A release is there as a whole: the earlier one stays until this one is complete.
mkdir -p "$(dirname "$out")"
rm -rf "$out.new" "$out.old"
cp -r "$made" "$out.new"
[[ ! -e $out ]] || mv "$out" "$out.old"
mv "$out.new" "$out"
rm -rf "$out.old"
(cd "$out" && ls -l && sha256sum --quiet --check SHA256SUMS)
