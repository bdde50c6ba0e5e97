#!/usr/bin/env bash
# duties.sh: what this proxy, put into place by proxy.sh, owes its cluster beside
# serving: Events about its start and about what is wrong with a Service, and health
# that follows its Node. It fails where one of them is missing.
set -euo pipefail
. "$(dirname "$0")/env.sh"
kubectl() { "$here/kubectl.sh" "$@"; }
nodes=$(ls "$work"/nodes/*.pid | wc -l)
failures=0
# check WHAT COMMAND…: the command must succeed within half a minute.
check() {
  local what=$1
  shift
  for _ in $(seq 60); do
    if "$@" >/dev/null 2>&1; then
      echo "ok: $what"
      return
    fi
    sleep 0.5
  done
  echo "MISSING: $what" >&2
  failures=$((failures + 1))
}
event() { # FIELDS TEXT
  kubectl get events --field-selector "$1" | grep -F "$2"
}
health() { # PATH CODE
  [ "$(ip netns exec cluster-client curl -s -o /dev/null -w '%{http_code}' --max-time 2 "http://$(node_ip "$nodes"):10256$1")" = "$2" ]
}
quiet() { # of what the account may not do, in the log of node $1's proxy
  local log
  log=$(kubectl -n kube-system logs "$(kubectl -n kube-system get pods -l app.kubernetes.io/name=userspace-proxy --field-selector "spec.nodeName=node$1" -o name)")
  [ -n "$log" ] && ! grep -i forbidden <<<"$log"
}

for n in $(seq "$nodes"); do
  check "an Event of the start on node$n" event "involvedObject.kind=Node,involvedObject.name=node$n,reason=Starting" "Starting userspace-proxy."
  check "a log of node$n that misses no right" quiet "$n"
done

kubectl apply -f - >/dev/null <<'YAML'
apiVersion: v1
kind: Service
metadata: {name: duties, annotations: {userspace-proxy/max-connections: many}}
spec: {ports: [{port: 80}]}
YAML
trap 'kubectl delete service duties --ignore-not-found >/dev/null; kubectl taint node "node$nodes" ToBeDeletedByClusterAutoscaler- >/dev/null 2>&1 || true' EXIT
check "an Event of what is wrong, on the Service" event "involvedObject.kind=Service,involvedObject.name=duties,type=Warning" userspace-proxy/max-connections

check "/healthz from outside: 200" health /healthz 200
kubectl taint node "node$nodes" ToBeDeletedByClusterAutoscaler=1:PreferNoSchedule >/dev/null
check "/healthz under the autoscaler's taint: 503" health /healthz 503
check "/livez, all the same: 200" health /livez 200
kubectl taint node "node$nodes" ToBeDeletedByClusterAutoscaler- >/dev/null
check "/healthz when the taint is gone: 200" health /healthz 200
exit $((failures > 0))
