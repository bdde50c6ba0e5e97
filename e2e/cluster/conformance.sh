#!/usr/bin/env bash
# conformance.sh [PROXY…]: builds what is missing, starts three nodes, runs
# Kubernetes' specs about Services and dual stack with each service proxy in turn (all
# that proxy.sh knows, and this one with --transparent, unless some are named), and
# what there is beyond the specs: duties.sh with this proxy, churn.sh with those that
# CHURN names. It ends the nodes, and writes docs/conformance.md of what became of these
# and of those that ran before and are in the work directory still.
# As root, on Linux with cgroups of version 1. FOCUS chooses other specs.
set -euo pipefail
. "$(dirname "$0")/env.sh"
[ $# -gt 0 ] || set -- nftables kube-proxy-nftables 'nftables --transparent' iptables kube-proxy-iptables
focus=${FOCUS:-'\[sig-network\] (Services|Conntrack|Traffic ?Distribution|\[Feature:IPv6DualStack\]) '}
# They reboot nodes, need SCTP, or a cloud that has load balancers.
skip='\[Disruptive\]|SCTP|LoadBalancer'
churn=${CHURN-nftables kube-proxy-nftables}

"$here/build.sh"
[ -n "${BINARY:-}" ] || make -s -C "$root" build
"$here/up.sh"
trap '"$here/down.sh"' EXIT
failed=
for proxy; do
  echo "== $proxy"
  "$here/proxy.sh" $proxy
  case $proxy in
  kube-proxy-*) ;;
  *) "$here/duties.sh" || failed="$failed duties.sh with $proxy;" ;;
  esac
  SECONDS=0
  # What fails stands in the report, and so does what passes then.
  "$here/specs.sh" "$proxy" "$focus" "$skip" || "$here/specs.sh" "$proxy" || true
  echo "specs: $SECONDS s"
  [[ " $churn " != *" $proxy "* ]] || "$here/churn.sh" $proxy || failed="$failed churn.sh with $proxy;"
done
"$here/report.sh"
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
