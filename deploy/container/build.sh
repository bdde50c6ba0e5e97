#!/usr/bin/env bash
# Builds the image localhost/userspace-proxy:latest, or the one that is named, with
# buildah: the binary, nft and both kinds of iptables. Its base is made here, from
# the packages that this machine's Debian has; nothing is run to make it, and no
# engine need be.
#   deploy/container/build.sh [IMAGE]
set -euo pipefail
cd "$(dirname "$0")"
image=${1:-localhost/userspace-proxy:latest}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/debs" "$work/rootfs"

# BINARY is one that is built already.
if [ -n "${BINARY:-}" ]; then
  cp "$BINARY" "$work/userspace-proxy"
else
  (cd ../.. && CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "$work/userspace-proxy" ./cmd/userspace-proxy)
fi

# The packages and all that they need, but for what is there to install packages.
wanted=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances nftables iptables netbase |
  grep -E '^[a-z0-9]' | sort -u | grep -vxE 'debconf.*|cdebconf|dpkg|tar|perl-base|libcrypt1|install-info')
(cd "$work/debs" && apt-get download -qq $wanted)
for deb in "$work"/debs/*.deb; do
  dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work/rootfs" --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale
done
# What the packages' scripts would do: iptables is the one of nftables. The legacy
# one has its place in a directory of its own, for a PATH that begins with it.
legacy=$work/rootfs/usr/local/lib/iptables-legacy
mkdir -p "$legacy" "$work/rootfs"/{etc,proc,sys,dev,run,tmp}
for name in iptables ip6tables; do
  for suffix in '' -save -restore; do
    ln -sf "$name-nft$suffix" "$work/rootfs/usr/sbin/$name$suffix"
    ln -s "/usr/sbin/$name-legacy$suffix" "$legacy/$name$suffix"
  done
done
ln -sfn /run "$work/rootfs/var/run" 2>/dev/null || { mkdir -p "$work/rootfs/var" && ln -s /run "$work/rootfs/var/run"; }

buildah bud --isolation=chroot --storage-driver="${STORAGE_DRIVER:-vfs}" ${BUILDAH_ROOT:+--root "$BUILDAH_ROOT" --runroot "$BUILDAH_ROOT/run"} \
  --quiet --tag "$image" --file Containerfile "$work" >/dev/null
echo "built $image"
