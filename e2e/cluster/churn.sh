#!/usr/bin/env bash
# churn.sh PROXY [FLAG…]: lets a load run on a Service, with the service proxy that
# proxy.sh has put into place under this name, while the cluster changes: a Deployment
# is updated, the proxy is started anew node after node, a node is drained, the control
# plane is gone for a minute. What was lost meanwhile is in $work/churn/NAME.json, a
# line for each client and change. It takes seven minutes.
set -euo pipefail
. "$(dirname "$0")/env.sh"
name="$*"
kubectl() { "$here/kubectl.sh" "$@"; }
nodes=$(ls "$work"/nodes/*.pid | wc -l)
out=$work/churn/$name.json
mkdir -p "$work/churn"
load=$work/churn/load
(cd "$root/e2e" && CGO_ENABLED=0 go build -o "$load" ./cluster/load)

kubectl apply -f "$here/churn.yaml" >/dev/null
finish() {
  kubectl uncordon "node$nodes" >/dev/null || true
  kubectl delete namespace churn --timeout=3m >/dev/null || true
}
trap finish EXIT
kubectl -n churn rollout status deployment web --timeout=2m >/dev/null
kubectl -n churn rollout status daemonset clients --timeout=2m >/dev/null

# inside N: the network namespace of the client pod of node N, as node N sees it.
inside() {
  local ip
  ip=$(kubectl -n churn get pods -l app=clients --field-selector "spec.nodeName=node$1" -o 'jsonpath={.items[0].status.podIP}')
  "$here/in.sh" "$1" bash -c 'for net in /run/netns/*; do ! nsenter --net="$net" ip -o addr | grep -qF " $1/" || echo "$net"; done' _ "$ip"
}
declare -A net
for n in $(seq "$nodes"); do
  net[$n]=$(inside "$n")
  [ -n "${net[$n]}" ] || { echo "the client pod of node $n was not found" >&2; exit 1; }
done
node_ports=$(for n in $(seq "$nodes"); do echo "$(node_ip "$n"):30080"; done | paste -sd,)

# during CHANGE COMMAND…: runs a command under load, with a few seconds before and
# after it.
during() {
  local change=$1 pids=() part=$work/churn/part n failed=0
  shift
  rm -rf "$part"
  mkdir "$part"
  for n in $(seq "$nodes"); do
    "$here/in.sh" "$n" nsenter --net="${net[$n]}" "$load" -during "$change" -from "a pod of node$n" \
      -tcp 10.96.7.7:80 -udp 10.96.7.7:80 >"$part/$n" &
    pids+=($!)
  done
  ip netns exec cluster-client "$load" -during "$change" -from outside -tcp "$node_ports" -udp "$node_ports" >"$part/outside" &
  pids+=($!)
  sleep 3
  SECONDS=0
  "$@" >"$work/churn/log" 2>&1 || failed=1
  echo "$change: $SECONDS s"
  sleep 5
  for pid in "${pids[@]}"; do pkill -TERM -P "$pid" -x load || kill -TERM "$pid"; done
  wait "${pids[@]}"
  [ "$failed" = 0 ] || { cat "$work/churn/log" >&2; exit 1; }
  cat "$part"/* >>"$out.new"
  rm -rf "$part"
}

updated() {
  kubectl -n churn rollout restart deployment web
  settled
}
settled() {
  kubectl -n churn rollout status deployment web --timeout=3m
  for _ in $(seq 240); do
    [ "$(kubectl -n churn get pods -l app=web -o name | wc -l)" != 6 ] || return 0
    sleep 0.5
  done
  return 1 # what was replaced has not ended
}
changed() { # how long a backend that is to end still answers, which replaces all
  kubectl -n churn set env deployment/web "DELAY=$1"
  settled
}
restarted() {
  local n
  case $name in
  kube-proxy-*)
    for n in $(seq "$nodes"); do
      "$here/process.sh" "$n" end proxy
      "$here/process.sh" "$n" start proxy
      for _ in $(seq 300); do
        ! "$here/in.sh" "$n" curl -sf --max-time 1 -o /dev/null http://127.0.0.1:10256/healthz || break
        sleep 0.1
      done
    done
    ;;
  *)
    # The old pods end with the last connections of the load, which rollout status
    # would wait for.
    local before
    before=$(proxy_pods | cut -d' ' -f1)
    kubectl -n kube-system rollout restart daemonset userspace-proxy
    for _ in $(seq 600); do
      [ "$(proxy_pods | grep -vF "$before" | grep -c ' True$')" != "$nodes" ] || return 0
      sleep 0.5
    done
    return 1
    ;;
  esac
}
# proxy_pods: those that are not to end, and whether they are ready.
proxy_pods() {
  kubectl -n kube-system get pods -l app.kubernetes.io/name=userspace-proxy -o go-template='{{range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.name}} {{range .status.conditions}}{{if eq .type "Ready"}}{{.status}}{{end}}{{end}}{{"\n"}}{{end}}{{end}}'
}
drained() {
  kubectl drain "node$nodes" --ignore-daemonsets --delete-emptydir-data --timeout=2m
  settled
}
gone() {
  local program
  for program in kube-scheduler kube-controller-manager kube-apiserver etcd; do "$here/process.sh" 1 end $program; done
  sleep 60
  for program in etcd kube-apiserver; do "$here/process.sh" 1 start $program; done
  for _ in $(seq 600); do
    ! kubectl get --raw /readyz >/dev/null || break
    sleep 0.2
  done
  for program in kube-controller-manager kube-scheduler; do "$here/process.sh" 1 start $program; done
  sleep 10 # what comes to light when it is back
}

rm -f "$out.new"
during "nothing" sleep 15
during "a Deployment is updated; its pods end at once" changed 5
during "a Deployment is updated; its pods answer for 5 s more" updated
during "the proxy is started anew, node after node" restarted
during "a node is drained" drained
kubectl uncordon "node$nodes" >/dev/null
during "the control plane is gone for a minute" gone
mv "$out.new" "$out"
