#!/usr/bin/env bash
# kubectl.sh ARGUMENT…: kubectl, as the cluster's administrator.
set -euo pipefail
. "$(dirname "$0")/env.sh"
exec "$here/in.sh" 1 "$kube" kubectl "$@"
