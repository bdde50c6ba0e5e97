#!/usr/bin/env bash
# Builds a real kube-apiserver, kubectl and etcd into bin/ for the tests, from
# the Go modules that e2e/controlplane/go.mod pins; with arguments, only those
# that they name. No code of this repository is in them, so that they are built
# once for a machine and kept outside the work tree, under a key of all that
# they are made from.
set -euo pipefail
cd "$(dirname "$0")/.."

# Kubernetes gets its version from its own build scripts; a module has none.
version=v1.37.2
flags=(-trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version")
declare -A package=(
  [etcd]=go.etcd.io/etcd/server/v3
  [kubectl]=k8s.io/kubernetes/cmd/kubectl
  [kube-apiserver]=k8s.io/kubernetes/cmd/kube-apiserver
)
[ $# -gt 0 ] || set -- etcd kubectl kube-apiserver
export CGO_ENABLED=0 GOFLAGS=

grep -q "k8s.io/kubernetes $version\b" e2e/controlplane/go.mod || {
  echo "scripts/controlplane.sh says Kubernetes $version, and e2e/controlplane/go.mod another version" >&2
  exit 1
}
key=$({ go version; go env GOOS GOARCH; cat e2e/controlplane/go.mod e2e/controlplane/go.sum; echo "${flags[@]}"; } | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/userspace-proxy
kept=$cache/controlplane-$key
mkdir -p "$kept" bin

for program; do
  [ -n "${package[$program]:-}" ] || { echo "usage: scripts/controlplane.sh [etcd] [kubectl] [kube-apiserver]" >&2; exit 2; }
  # One build at a time; whoever waited finds what the other has built.
  exec 9>"$kept/$program.lock"
  flock 9
  if [ ! -e "$kept/$program" ]; then
    echo "building $program into $kept, once; all three take 6 to 15 minutes on two cores"
    SECONDS=0
    (cd e2e/controlplane && nice go build "${flags[@]}" -o "$kept/$program.new" "${package[$program]}")
    mv "$kept/$program.new" "$kept/$program"
    echo "  $program took $SECONDS s"
  fi
  exec 9>&-
  cp -fl "$kept/$program" bin/ 2>/dev/null || cp -f "$kept/$program" bin/ # the cache may be on another disk
done
touch "$kept"
# Those of other versions, once no work tree has asked for them for a week.
find "$cache" -maxdepth 1 -name 'controlplane-*' -type d -mtime +7 -exec rm -rf {} +
echo "in bin/: $*"
