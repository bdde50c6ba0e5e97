# Names, addresses and places that the scripts beside this file share; source it.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

version=v1.37.2 # of Kubernetes, as in kube/go.mod and specs/go.mod
# Everything has an IPv4 address, which comes first, and an IPv6 address.
client_ip=172.30.0.1  # of netns "cluster-client", which is outside the cluster
client_ip6=fd30::1
server_ip=172.30.0.2  # of the API server, on node 1
node_ip() { echo "172.30.0.$(($1 + 1))"; }
node_ip6() { echo "fd30::$(($1 + 1))"; }
pod_cidr() { echo "10.244.$1.0/24"; }
pod_cidr6() { echo "fd44:0:0:$1::/64"; }
service_cidrs=10.96.0.0/16,fd96::/108

# What is built, once for a machine, under a key of all that it is made from.
key=$({ go version; cat "$here"/{kube,specs}/go.{mod,sum} "$here"/kube/*.go "$here"/images/* "$here"/build.sh; } | sha256sum | cut -c1-16)
kept=${XDG_CACHE_HOME:-$HOME/.cache}/userspace-proxy/cluster-$key
kube=$kept/bin/kube

# What a cluster that runs has on disk: its state, logs, keys and reports.
work=${CLUSTER_WORK:-/var/tmp/userspace-proxy-cluster}
export KUBECONFIG=$work/pki/admin.kubeconfig

# keep_log N: this proxy's log of node N, to where other programs' are: its pods' go with them.
keep_log() {
  local logs=("$work/var/$1"/pods/kube-system_userspace-proxy-*/userspace-proxy/*.log)
  [ ! -e "${logs[0]:-}" ] || cat "${logs[@]}" >"$work/log/$1/proxy.log"
}
