#!/usr/bin/env bash
# proxy.sh PROXY: puts another service proxy in the place of the one that runs, on
# every node, and leaves nothing of that one's rules. PROXY is
#
#   nftables, iptables                                     this proxy
#   kube-proxy-nftables, kube-proxy-iptables               kube-proxy
#   none                                                   none
#
# BINARY is this proxy's, by default bin/userspace-proxy of the work tree; ARGS are
# more arguments for it.
set -euo pipefail
. "$(dirname "$0")/env.sh"
binary=$(realpath "${BINARY:-$root/bin/userspace-proxy}")
for file in "$work"/nodes/*.pid; do
  n=$(basename "$file" .pid)
  var=$work/var/$n log=$work/log/$n/proxy.log
  old=$(cat "$var/proxy.pid" 2>/dev/null || true)
  if [ -n "$old" ]; then # its number in the node's own namespace
    "$here/in.sh" "$n" bash -c "kill $old; for _ in \$(seq 100); do [ -d /proc/$old ] || exit 0; sleep 0.1; done; kill -9 $old" 2>/dev/null || true
    rm "$var/proxy.pid"
  fi
  "$here/in.sh" "$n" "$kube" kube-proxy --cleanup >"$work/log/$n/cleanup.log" 2>&1 || true
  "$here/in.sh" "$n" "$binary" cleanup >>"$work/log/$n/cleanup.log" 2>&1
  "$here/in.sh" "$n" conntrack -F >/dev/null 2>&1 || true
  case $1 in
  none) continue ;;
  kube-proxy-*) command=("$kube" kube-proxy --config="$var/$1.yaml" --hostname-override="node$n") ;;
  *) command=("$binary" run --kubeconfig="$work/pki/proxy.kubeconfig" --hostname-override="node$n" --redirect="$1" --drain-timeout=0s ${ARGS:-}) ;;
  esac
  "$here/in.sh" "$n" bash -c 'log=$1 pid=$2; shift 2; setsid "$@" >"$log" 2>&1 </dev/null & echo $! >"$pid"' _ "$log" "$var/proxy.pid" "${command[@]}"
done
