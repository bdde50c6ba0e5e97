#!/usr/bin/env bash
# node.sh N PROXY: the first process in the namespaces of node N, which up.sh has
# made. It mounts what a node has of its own, starts its programs, and waits.
set -euo pipefail
. "$(dirname "$0")/env.sh"
n=$1 proxy=$2 name=node$1
var=$work/var/$n log=$work/log/$n pki=$work/pki
mkdir -p "$var"/{kubelet,containerd,pods,containers,etcd,cni,cni-net,sysctl} "$log"

mount --make-rprivate /
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
for controller in cpu cpuacct cpuset memory devices freezer blkio pids; do
  mkdir "/sys/fs/cgroup/$controller"
  mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller"
done
mkdir /sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
mount -t tmpfs -o mode=755 tmpfs /run
own() { mkdir -p "$2"; mount --bind "$var/$1" "$2"; }
own kubelet /var/lib/kubelet
own containerd /var/lib/containerd
own pods /var/log/pods
own containers /var/log/containers
own cni /var/lib/cni
own cni-net /etc/cni/net.d
# The kubelet would write these for the whole machine: it sees what it wants.
seen() {
  [ -e "$1" ] || return 0
  echo "$2" >"$var/sysctl/$(basename "$1")"
  mount --bind "$var/sysctl/$(basename "$1")" "$1"
}
seen /proc/sys/vm/overcommit_memory 1
seen /proc/sys/vm/panic_on_oom 0
seen /proc/sys/kernel/panic 10
seen /proc/sys/kernel/panic_on_oops 1
seen /proc/sys/kernel/keys/root_maxkeys 1000000
seen /proc/sys/kernel/keys/root_maxbytes 25000000
mount --make-rshared /
hostname "$name"
# The bridge of the pods is made later; its address is to serve at once.
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.accept_dad=0

start() { # NAME COMMAND…
  local program=$1
  shift
  "$@" >"$log/$program.log" 2>&1 &
  echo $! >"$var/$program.pid"
}
await_server() {
  for _ in $(seq 1200); do
    ! curl -sk --max-time 1 "https://$server_ip:6443/readyz" | grep -qx ok || return 0
    sleep 0.1
  done
}
if [ "$n" = 1 ]; then
  start etcd "$kube" etcd -data-dir "$var/etcd"
  start kube-apiserver "$kube" kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
    --advertise-address="$server_ip" --bind-address=0.0.0.0 --secure-port=6443 \
    --tls-cert-file="$pki/server.crt" --tls-private-key-file="$pki/server.key" --client-ca-file="$pki/ca.crt" \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
    --requestheader-client-ca-file="$pki/front-ca.crt" --requestheader-allowed-names=front-proxy-client \
    --requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group --requestheader-username-headers=X-Remote-User \
    --proxy-client-cert-file="$pki/front.crt" --proxy-client-key-file="$pki/front.key" \
    --token-auth-file="$pki/tokens.csv" --authorization-mode=RBAC --allow-privileged=true \
    --service-cluster-ip-range="$service_cidrs" --service-node-port-range=30000-32767 \
    --kubelet-preferred-address-types=InternalIP --profiling=false
  await_server
  as_admin=(--kubeconfig="$KUBECONFIG" --authentication-kubeconfig="$KUBECONFIG" --authorization-kubeconfig="$KUBECONFIG" --leader-elect=false --bind-address=127.0.0.1)
  start kube-controller-manager "$kube" kube-controller-manager "${as_admin[@]}" --root-ca-file="$pki/ca.crt" \
    --service-account-private-key-file="$pki/sa.key" --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
    --service-cluster-ip-range="$service_cidrs"
  start kube-scheduler "$kube" kube-scheduler "${as_admin[@]}"
  start dns "$kube" dns -kubeconfig "$KUBECONFIG" -listen "$server_ip:53"
fi

start containerd containerd --config "$here/containerd.toml"
for _ in $(seq 300); do
  ! ctr version >/dev/null 2>&1 || break
  sleep 0.1
done
for image in "$kept"/images/*.tar; do ctr -n k8s.io images import "$image" >/dev/null; done
ctr -n k8s.io images tag registry.k8s.io/build-image/distroless-iptables:v0.9.9 registry.k8s.io/e2e-test-images/busybox:1.37.0-2 >/dev/null
cat >/etc/cni/net.d/10-bridge.conflist <<EOF
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": false,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "$(pod_cidr "$n")"}], [{"subnet": "$(pod_cidr6 "$n")"}]],
   "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
 {"type": "portmap", "capabilities": {"portMappings": true}}]}
EOF
await_server
sed "s#RESOLV_CONF#$work/resolv.conf#" "$here/kubelet.yaml" >"$var/kubelet.yaml"
start kubelet "$kube" kubelet --kubeconfig="$KUBECONFIG" --config="$var/kubelet.yaml" --hostname-override="$name" --node-ip="$(node_ip "$n"),$(node_ip6 "$n")" \
  --node-labels="topology.kubernetes.io/zone=z$n"
for mode in iptables nftables; do
  sed "s#MODE#$mode#; s# KUBECONFIG# $pki/proxy.kubeconfig#" "$here/kube-proxy.yaml" >"$var/kube-proxy-$mode.yaml"
done
[ "$proxy" = none ] || start proxy "$kube" kube-proxy --config="$var/kube-proxy-$proxy.yaml" --hostname-override="$name"
for _ in $(seq 600); do
  ! "$kube" kubectl get node "$name" 2>/dev/null | grep -qw Ready || break
  sleep 0.2
done
"$kube" kubectl patch node "$name" -p "{\"spec\":{\"podCIDR\":\"$(pod_cidr "$n")\",\"podCIDRs\":[\"$(pod_cidr "$n")\",\"$(pod_cidr6 "$n")\"]}}"
touch "$var/ready"
trap 'exit 0' TERM INT
while :; do wait -n 2>/dev/null || sleep 1; done
