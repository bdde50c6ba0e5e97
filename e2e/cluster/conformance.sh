#!/usr/bin/env bash
# conformance.sh [PROXY…]: builds what is missing, starts three nodes, runs
# Kubernetes' specs about Services with each service proxy in turn (all that
# proxy.sh knows, unless some are named), ends the nodes, and writes
# docs/conformance.md of what became of them. As root, on Linux with cgroups of
# version 1. FOCUS chooses other specs.
set -euo pipefail
. "$(dirname "$0")/env.sh"
[ $# -gt 0 ] || set -- kube-proxy-nftables kube-proxy-iptables nftables iptables
focus=${FOCUS:-'\[sig-network\] (Services|Conntrack|Traffic ?Distribution) '}
# They reboot nodes, need SCTP, or a cloud that has load balancers.
skip='\[Disruptive\]|SCTP|LoadBalancer'

"$here/build.sh"
[ -n "${BINARY:-}" ] || make -s -C "$root" build
"$here/up.sh"
trap '"$here/down.sh"' EXIT
rm -rf "$work/report"
for proxy; do
  echo "== $proxy"
  "$here/proxy.sh" "$proxy"
  SECONDS=0
  "$here/specs.sh" "$proxy" "$focus" "$skip" || true # what fails stands in the report
  echo "$SECONDS s"
done
cd "$root/e2e"
go run ./cluster/report -kubernetes "$version" -reports "$work/report" -doc "$root/docs/conformance.md"
