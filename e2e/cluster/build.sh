#!/usr/bin/env bash
# Builds what the cluster is made of into the cache: Kubernetes' programs in one
# binary, its end-to-end tests, and the few images that they use, all from Go
# modules and programs of this machine; nothing is pulled. 12 to 25 minutes on
# two idle cores the first time, 2 GB; then nothing. On Debian, as root, it
# installs the packages that it lacks.
set -euo pipefail
. "$(dirname "$0")/env.sh"

packages="containerd runc containernetworking-plugins ethtool busybox-static netcat-openbsd bind9-dnsutils iptables nftables conntrack iproute2 curl wget socat openssl gcc buildah"
if ! dpkg -s $packages >/dev/null 2>&1; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq </dev/null
  apt-get install -qq -y --no-install-recommends $packages </dev/null >/dev/null
fi

mkdir -p "$kept/bin" "$kept/images"
exec 9>"$kept/lock"
flock 9 # whoever waited finds what the other has built

# Kubernetes gets its version from its own build scripts; a module has none.
at=k8s.io/component-base/version
stamp="-X $at.gitVersion=$version -X $at.gitMajor=1 -X $at.gitMinor=37 -X $at.gitTreeState=clean -X $at.gitCommit=module -X $at.buildDate=1970-01-01T00:00:00Z"

# built NAME DIRECTORY COMMAND…: has COMMAND, in DIRECTORY, make the program
# whose path is put in the place of OUT, unless it is there.
built() {
  local name=$1 directory=$2 args=()
  shift 2
  [ ! -e "$kept/bin/$name" ] || return 0
  for a; do args+=("${a/#OUT/$kept/bin/$name.new}"); done
  echo "building $name into $kept, once"
  SECONDS=0
  (cd "$directory" && GOFLAGS=-mod=mod nice "${args[@]}")
  mv "$kept/bin/$name.new" "$kept/bin/$name"
  echo "  $name took $SECONDS s"
}
images=k8s.io/kubernetes/test/images
built kube "$here/kube" go build -buildvcs=false -ldflags "-s -w $stamp" -o OUT .
built agnhost "$here/specs" go build -buildvcs=false -ldflags "-s -w -linkmode external -extldflags -static" -o OUT $images/agnhost
built regression-issue-74839 "$here/specs" env CGO_ENABLED=0 go build -buildvcs=false -ldflags "-s -w" -o OUT $images/regression-issue-74839
built e2e.test "$here/specs" go test -c -vet=off -ldflags "-s -w $stamp" -o OUT k8s.io/kubernetes/test/e2e
built ginkgo "$here/specs" go build -buildvcs=false -ldflags "-s -w" -o OUT github.com/onsi/ginkgo/v2/ginkgo
ln -sf kube "$kept/bin/kubectl"
[ -e "$kept/images/regression.tar" ] || "$here/images/build.sh"
