#!/usr/bin/env bash
# proxy.sh PROXY [FLAG…]: puts another service proxy in the place of the one that
# runs, on every node, and leaves nothing of that one's rules. PROXY is
#
#   nftables, iptables                        this proxy
#   kube-proxy-nftables, kube-proxy-iptables  kube-proxy, a process of each node
#   none                                      none
#
# This proxy is what deploy/kubernetes says: its image, DaemonSet, account, rights
# and configuration, as docs/install.md has them put into a cluster that kubeadm has
# not made. "differences", below, has what is changed, and prints it. FLAGs, such as
# --transparent, are added to its arguments.
#
# BINARY is this proxy's, by default bin/userspace-proxy of the work tree.
set -euo pipefail
. "$(dirname "$0")/env.sh"
proxy=$1
shift
binary=$(realpath "${BINARY:-$root/bin/userspace-proxy}")
deploy=$work/deploy
on_each() { # FUNCTION ARGUMENT…
  local file
  for file in "$work"/nodes/*.pid; do "$1" "$(basename "$file" .pid)" "${@:2}"; done
}

end_process() { "$here/process.sh" "$1" end proxy; }

# What every proxy may have left, each with its own means.
clean() {
  "$here/in.sh" "$1" "$kube" kube-proxy --cleanup >"$work/log/$1/cleanup.log" 2>&1 || true
  "$here/in.sh" "$1" "$binary" cleanup >>"$work/log/$1/cleanup.log" 2>&1
  "$here/in.sh" "$1" conntrack -F >/dev/null 2>&1 || true
}

start_kube_proxy() {
  rm -f "$work/log/$1/proxy.log"
  "$here/process.sh" "$1" start proxy "$kube" kube-proxy --config="$work/var/$1/$proxy.yaml" --hostname-override="node$1"
}

# differences FLAG…: the DaemonSet here beside the one in deploy/kubernetes, as a
# JSON patch of its only container.
differences() {
  local flag container=/spec/template/spec/containers/0
  for flag; do
    echo "  with the argument $flag" >&2
    echo "- {op: add, path: $container/args/-, value: '$flag'}"
  done
  # Who asks for a capability that the machine itself lacks is not started.
  local sys_resource=24
  if ! (((0x$(awk '/^CapBnd/ {print $2}' /proc/self/status) >> sys_resource) & 1)); then
    echo "  without the capability SYS_RESOURCE, which this machine lacks" >&2
    local at # in the list
    at=$(awk '/^ +add:$/ { n = 0; list = 1; next } list && /- SYS_RESOURCE/ { print n; exit } list { n++ }' "$deploy/userspace-proxy.yaml")
    echo "- {op: test, path: $container/securityContext/capabilities/add/$at, value: SYS_RESOURCE}"
    echo "- {op: remove, path: $container/securityContext/capabilities/add/$at}"
  fi
}

# image makes the image by deploy/container, once for a binary, for import_image to
# bring it to a node.
image() {
  local sum
  sum=$(sha256sum "$binary" | cut -c1-16)
  image=$work/images/$sum.tar
  [ ! -e "$image" ] || return 0
  mkdir -p "$work/images"
  find "$work/images" -name '*.tar' -delete # of older binaries
  BINARY=$binary BUILDAH_ROOT=$work/buildah "$root/deploy/container/build.sh" >&2
  buildah --root "$work/buildah" --runroot "$work/buildah/run" --storage-driver vfs \
    push -q localhost/userspace-proxy:latest "oci-archive:$image.new:localhost/userspace-proxy:latest"
  mv "$image.new" "$image"
  rm -rf "$work/buildah"
}
import_image() { "$here/in.sh" "$1" ctr --namespace k8s.io images import "$image" >/dev/null; }

start_self() { # FLAG…
  image
  on_each import_image
  mkdir -p "$deploy"
  cp "$root/deploy/kubernetes/userspace-proxy.yaml" "$deploy"
  sed "s/CONTROL-PLANE/$server_ip/" "$root/deploy/kubernetes/kubeconfig.yaml" >"$deploy/kubeconfig.yaml"
  {
    echo "resources: [userspace-proxy.yaml, kubeconfig.yaml]"
    echo "patches:"
    echo "- target: {kind: DaemonSet}"
    echo "  patch: |-"
    echo "deploy/kubernetes:" >&2
    differences "$@" | sed 's/^/    /'
  } >"$deploy/kustomization.yaml"
  "$here/kubectl.sh" apply -k "$deploy" >/dev/null
  if ! "$here/kubectl.sh" -n kube-system rollout status daemonset userspace-proxy --timeout=2m >/dev/null; then
    "$here/kubectl.sh" -n kube-system describe pods -l app.kubernetes.io/name=userspace-proxy >&2
    on_each keep_log
    tail "$work"/log/*/proxy.log >&2
    exit 1
  fi
}

on_each end_process
if [ -e "$deploy/kustomization.yaml" ]; then
  on_each keep_log
  "$here/kubectl.sh" delete -k "$deploy" --cascade=foreground --ignore-not-found >/dev/null
  rm -r "$deploy"
fi
on_each clean
case $proxy in
none) ;;
kube-proxy-nftables | kube-proxy-iptables) on_each start_kube_proxy ;;
nftables | iptables) start_self "--redirect=$proxy" "$@" ;;
*)
  sed -n '2,7s/^# \?//p' "$0" >&2
  exit 2
  ;;
esac
