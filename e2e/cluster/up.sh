#!/usr/bin/env bash
# up.sh [PROXY]: starts the cluster: three nodes, or NODES of them, each in
# namespaces of its own (network, mounts, processes, host name, IPC, cgroups) with
# containerd, a kubelet and a service proxy; node 1 has the control plane too. The
# network namespace cluster-client is outside, and links them. PROXY is iptables
# or nftables, which are kube-proxy's modes, or none (the default).
set -euo pipefail
. "$(dirname "$0")/env.sh"
nodes=${NODES:-3}
proxy=${1:-none}
[ -d /sys/fs/cgroup/cpuset ] || { echo "up.sh needs cgroups of version 1: boot with systemd.unified_cgroup_hierarchy=0" >&2; exit 1; }
[ -x "$kube" ] || { echo "run build.sh first" >&2; exit 1; }
if [ -e "$work/nodes/1.pid" ] && kill -0 "$(cat "$work/nodes/1.pid")" 2>/dev/null; then
  echo "it runs already; down.sh ends it" >&2
  exit 1
fi
"$here/down.sh" >/dev/null
mkdir -p "$work"/{nodes,log,var}
[ -e "$work/pki/done" ] || "$here/pki.sh"
touch "$work/resolv.conf"

ip netns add cluster-client
ip -n cluster-client link set lo up
ip -n cluster-client link add br0 type bridge
ip -n cluster-client link set br0 up
ip -n cluster-client addr add "$client_ip/24" dev br0
ip -n cluster-client addr add "$client_ip6/64" dev br0 nodad
for n in $(seq "$nodes"); do
  net=cluster-node$n
  ip netns add "$net"
  ip link add eth0 netns "$net" type veth peer name "n$n" netns cluster-client
  ip -n cluster-client link set "n$n" master br0 up
  ip -n "$net" link set lo up
  ip -n "$net" link set eth0 up
  ip -n "$net" addr add "$(node_ip "$n")/24" dev eth0
  ip -n "$net" addr add "$(node_ip6 "$n")/64" dev eth0 nodad
  ip -n "$net" route add default via "$client_ip"
  ip -n "$net" route add default via "$client_ip6"
  for m in $(seq "$nodes"); do
    [ "$m" != "$n" ] || continue
    ip -n "$net" route add "$(pod_cidr "$m")" via "$(node_ip "$m")"
    ip -n "$net" route add "$(pod_cidr6 "$m")" via "$(node_ip6 "$m")"
  done
done

# enter N: moves this shell into cgroups (version 1) of node N's own.
enter() {
  local controllers path group
  while IFS=: read -r _ controllers path; do
    controllers=${controllers#name=}
    [ -n "$controllers" ] || continue
    group=/sys/fs/cgroup/$controllers${path%/}/cluster-node$1
    mkdir -p "$group"
    if [ "$controllers" = cpuset ]; then
      cat "/sys/fs/cgroup/cpuset${path%/}/cpuset.cpus" >"$group/cpuset.cpus"
      cat "/sys/fs/cgroup/cpuset${path%/}/cpuset.mems" >"$group/cpuset.mems"
      echo 1 >"$group/cgroup.clone_children"
    fi
    echo "$BASHPID" >"$group/cgroup.procs"
    echo "$group" >>"$work/nodes/cgroups"
  done </proc/self/cgroup
}
for n in $(seq "$nodes"); do
  (
    enter "$n"
    exec setsid nsenter --net="/run/netns/cluster-node$n" \
      unshare --mount --pid --fork --kill-child --mount-proc --uts --ipc --cgroup \
      "$here/node.sh" "$n" "$proxy" </dev/null >"$work/log/node$n.log" 2>&1
  ) &
  outer=$!
  inner=
  for _ in $(seq 100); do
    inner=$(pgrep -P $outer -f node.sh | head -1) && [ -n "$inner" ] && break
    sleep 0.1
  done
  [ -n "$inner" ] || { echo "node $n did not start" >&2; cat "$work/log/node$n.log" >&2; exit 1; }
  echo "$inner" >"$work/nodes/$n.pid"
done
for n in $(seq "$nodes"); do
  for _ in $(seq 1500); do
    [ ! -e "$work/var/$n/ready" ] || break
    kill -0 "$(cat "$work/nodes/$n.pid")" 2>/dev/null || break
    sleep 0.2
  done
  [ -e "$work/var/$n/ready" ] || { echo "node $n is not ready" >&2; tail -20 "$work/log/node$n.log" >&2; exit 1; }
done
echo "$nodes nodes are ready; $here/kubectl.sh asks them, $here/down.sh ends them"
